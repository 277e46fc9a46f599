"""Takes what a person gives a run, whether it is running, waiting or at its end."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.problem.kernel import fingerprint, read_kernel
from beamsearch.proposer.playbook.playbook import AUTHOR as PLAYBOOK
from beamsearch.proposer.prompts.outcomes import HINT_CHARACTERS, lines_of
from beamsearch.records.candidate import PERSON
from beamsearch.records.file_lock import in_turn
from beamsearch.records.packed import written_run
from beamsearch.records.proposal import Proposal
from beamsearch.records.steering import Hint, Steering
from beamsearch.records.trace import Trace, write_record
from kernel_profiling.syntax import parse

HINTS_CHARACTERS = 3 * HINT_CHARACTERS
"""Of all that stand together: 1,500 tokens, what prompts give their notes too."""


def steered(folder: Path) -> Trace:
    """A run that a person may give something. Raises UsageError where there is none, where it is
    packed, or where it replays another."""
    trace = written_run(folder)
    replayed = trace.run_record().settings.llm.run
    if replayed is not None:
        raise UsageError(
            f"{folder} replays {replayed}, with what people gave that run; "
            "start a run of its own to steer it"
        )
    return trace


def add_hint(folder: Path, text: str) -> Hint:
    """Record advice for the rounds that begin from now on. Raises UsageError where it is empty or
    too long, and where nobody would read it."""
    trace, text = steered(folder), text.strip()
    if trace.run_record().who_thinks == PLAYBOOK:
        raise UsageError(
            f"the playbook thinks in {folder}, and it cannot read: a hint would not be used; "
            "`inject` gives the run a kernel"
        )
    if not text:
        raise UsageError("the hint is empty; write what to try, or what to leave")
    length = _length(text)
    if length > HINT_CHARACTERS:
        raise UsageError(
            f"the hint has {length} characters, and prompts have room for {HINT_CHARACTERS} of "
            "one; say it shorter"
        )
    with _changing(trace) as steering:
        if length + sum(_length(hint.text) for hint in steering.standing) > HINTS_CHARACTERS:
            raise UsageError(
                f"the hints of {folder} fill what prompts have room for, {HINTS_CHARACTERS} "
                "characters; take one away with --remove"
            )
        hint = Hint(number=len(steering.hints) + 1, text=text)
        _save(trace, steering.with_values(hints=[*steering.hints, hint]))
    return hint


def remove_hint(folder: Path, number: int) -> Hint:
    """Take a hint away: rounds that begin from now on do not see it. Raises UsageError where there
    is none of that number."""
    trace = steered(folder)
    with _changing(trace) as steering:
        if number not in {hint.number for hint in steering.standing}:
            known = ", ".join(str(hint.number) for hint in steering.standing) or "none"
            raise UsageError(f"{folder} has no hint {number}; it has: {known}")
        hints = [
            hint.with_values(removed=True) if hint.number == number else hint
            for hint in steering.hints
        ]
        _save(trace, steering.with_values(hints=hints))
    return hints[number - 1]


def add_kernel(folder: Path, file: Path) -> Proposal:
    """Record a kernel for the next round that begins. Raises KernelError where it is none, and
    UsageError where the run has it already."""
    trace, source = steered(folder), read_kernel(file)
    print_ = fingerprint(source)
    for candidate in (c for record in trace.completed_rounds() for c in record.candidates):
        if candidate.fingerprint == print_:
            outcome = candidate.verdict.outcome.value
            raise UsageError(f"{file} is the same kernel as {candidate.name} there ({outcome})")
    with _changing(trace) as steering:
        if print_ in {fingerprint(kernel.source or "") for kernel in steering.kernels}:
            raise UsageError(f"{file} was given to {folder} before; it is judged once")
        told = (ast.get_docstring(parse(source)) or "").strip().partition("\n")[0]
        kernel = Proposal(description=told or file.stem, source=source, author=PERSON)
        _save(trace, steering.with_values(kernels=[*steering.kernels, kernel]))
    return kernel


def _length(text: str) -> int:
    """Characters that it takes in a prompt, where its lines are indented."""
    return len(lines_of(text, 3 * len(text)))


@contextmanager
def _changing(trace: Trace) -> Iterator[Steering]:
    """What stands there, for one process at a time to change."""
    with in_turn(trace.folder / ".steering.lock"):
        yield trace.steering()


def _save(trace: Trace, steering: Steering) -> None:
    write_record(trace.steering_file, steering)
