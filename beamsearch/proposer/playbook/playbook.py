"""The built-in thinker: rewrites chosen by what the profile found and by what was tried before."""

from __future__ import annotations

import json
from collections import defaultdict
from functools import lru_cache
from pathlib import Path
from statistics import fmean
from threading import Lock

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.kernel import fingerprint
from beamsearch.problem.problem import Problem
from beamsearch.proposer.playbook.rewrites import launch
from beamsearch.proposer.playbook.rewrites.compositions import Proposal, pairs, simple
from beamsearch.proposer.playbook.rewrites.constants import SIZES
from beamsearch.proposer.playbook.rewrites.hints import Hints, Shape
from beamsearch.proposer.questions import (
    Attempt,
    Diagnosis,
    DiagnosisQuestion,
    FirstQuestion,
    Question,
    Reflection,
    ReflectionQuestion,
    Reply,
    Situation,
    VariantsQuestion,
)
from beamsearch.records.verdict import Outcome

AUTHOR = "playbook"
ENOUGH = 8
"""New proposals below which pairs of moves are looked at too: a round's worth of a parent."""
POOR = 0.98
"""Mean speedup below which a move that was tried elsewhere goes to the end."""
NOTHING_LEFT = "Nothing new is left for this kernel: every rewrite that fits it was tried."


class Playbook:
    """A thinker that needs no model. The same question has the same answer."""

    name = AUTHOR
    reads_prompts = False

    def answer(self, question: Question | FirstQuestion, prompt: str) -> Reply:
        """The reply, in the form a model would give it; the prompt is not read."""
        if isinstance(question, DiagnosisQuestion):
            text = _diagnosis(question)
        elif isinstance(question, VariantsQuestion):
            text = _variants(question)
        elif isinstance(question, ReflectionQuestion):
            text = _reflection(question)
        else:
            raise ValueError(f"the playbook has no answer to a {question.purpose} question")
        return Reply(text=text, author=AUTHOR)


def _fenced(record: Diagnosis | Reflection) -> str:
    return f"```json\n{json.dumps(record.model_dump(), indent=2, ensure_ascii=False)}\n```\n"


# -- choosing


def choose(question: Situation, seen: set[str], count: int) -> list[Proposal]:
    """The worker's proposals: its share of the ranked list, those for its finding first.

    Workers of one parent see the same list and take every n-th of it, so that no two propose the
    same; what nobody takes is there in the next round.
    """
    ranked = _ranked(question, seen)
    mine = ranked[question.share :: question.shares]
    if len(mine) < count:
        mine += [p for p in reversed(ranked) if p not in mine]
    window = mine[: 2 * count]
    best = min((p.tier for p in window), default=0)
    wanted = question.direction.finding
    window.sort(key=lambda p: (p.tier > best, wanted not in p.findings))
    return window[:count]


def _ranked(question: Situation, seen: set[str]) -> list[Proposal]:
    """Every new proposal: tiers in order, within one first what gained most in earlier runs; then
    launch parameters, where these are swept anyway; and what did badly before at the end."""
    problem = (question.problem.source, question.problem.dtype)
    broken = _sizes_break_it(question)
    known = _simple(question.parent_source, *problem, not broken)
    new = {p: proposal for p, proposal in known.items() if p not in seen}
    if len(new) < ENOUGH:
        with _ONE_AT_A_TIME:
            drawn = list(
                pairs(question.parent_source, _hints(*problem), question.seed, sizes=not broken)
            )
        for proposal in drawn:
            print_ = fingerprint(proposal.source)
            if print_ not in seen and print_ not in known:
                new.setdefault(print_, proposal)
    record = _record(question, without_sizes=broken)
    gains: dict[str, list[float]] = defaultdict(list)
    for done, gain in question.memory.earlier.moves.items():
        gains[move(done)].append(gain)
    before = {done: fmean(values) for done, values in gains.items()}

    def place(proposal: Proposal) -> tuple[bool, bool, int, float]:
        done = move(proposal.what)
        poor = done in record and fmean(record[done]) < POOR
        swept = question.tuned and proposal.names == (launch.REWRITE.name,)
        return poor, swept, proposal.tier, -before.get(done, 1.0)

    return sorted(new.values(), key=place)


_ONE_AT_A_TIME = Lock()
"""Workers ask at the same time; the first works the list out, the others find it."""


def _simple(source: str, problem: str, dtype: str, sizes: bool) -> dict[str, Proposal]:
    with _ONE_AT_A_TIME:
        return _work_out(source, problem, dtype, sizes)


@lru_cache(maxsize=32)
def _work_out(source: str, problem: str, dtype: str, sizes: bool) -> dict[str, Proposal]:
    """Fingerprint -> proposal of all but pairs; workers of one parent share the work."""
    found: dict[str, Proposal] = {}
    for proposal in simple(source, _hints(problem, dtype), sizes=sizes):
        found.setdefault(fingerprint(proposal.source), proposal)
    found.pop(fingerprint(source), None)
    return found


def _record(question: Situation, *, without_sizes: bool) -> dict[str, list[float]]:
    """Move -> speedups over the parent wherever it was the only one; a failure counts as 0, but for
    those of constexpr sizes where these are not to count."""
    record: dict[str, list[float]] = defaultdict(list)
    for attempt in question.memory.attempts:
        if attempt.tuned_from is not None:
            continue  # its speedup is that of the change it was tuned after
        speedup = attempt.speedup_over_parent
        if _failed(attempt):
            if without_sizes and attempt.description.startswith(SIZES):
                continue
            speedup = 0.0
        if speedup is not None:
            record[move(attempt.description)].append(speedup)
    return record


def _sizes_break_it(question: Situation) -> bool:
    """Whether two kernels or more had their sizes made constexpr and all of them failed: what goes
    with everything would make everything fail."""
    of_sizes = [a for a in question.memory.attempts if a.description.startswith(SIZES)]
    return len(of_sizes) > 1 and all(map(_failed, of_sizes))


def _failed(attempt: Attempt) -> bool:
    return attempt.outcome not in ("correct", "not_shown_correct", "duplicate", "no_code")


def move(what: str) -> str:
    """What was done but for making sizes constexpr, which goes with everything."""
    return "; ".join(m for m in what.split("; ") if not m.startswith(SIZES)) or what


@lru_cache(maxsize=8)
def _hints(source: str, dtype: str) -> Hints:
    """What the problem's kernels are called with, tensors as shapes; empty where unknown."""
    import torch

    problem = Problem(name="question", path=Path("problem.py"), source=source, dtype=dtype)
    try:
        values = instantiate(problem, "meta").arguments.values
    except ProblemError:
        return Hints()
    return Hints(
        {
            name: Shape(tuple(value.shape)) if isinstance(value, torch.Tensor) else value
            for name, value in values.items()
        }
    )


# -- answering


def _diagnosis(question: DiagnosisQuestion) -> str:
    wanted = question.direction.finding
    finding = next((f for f in question.findings if f.kind == wanted), None)
    tried = {a.description for a in question.memory.attempts}
    chosen = [p for p in choose(question, set(), 8) if p.what not in tried][:2]
    plan = " Then: ".join(p.what for p in chosen) or "a rewrite that was not tried yet"
    cause, evidence, expected = "the profile names no such finding", [], None
    if finding:
        where = f" (lines {', '.join(map(str, finding.lines))})" if finding.lines else ""
        cause, evidence = f"{finding.title}{where}", finding.evidence
        expected = finding.gain_bound if any(p.tier == 0 for p in chosen) else None
    record = Diagnosis(
        bottleneck=wanted,
        cause=cause,
        evidence=evidence,
        plan=plan,
        expected_speedup=expected,
    )
    return _fenced(record)


def _variants(question: VariantsQuestion) -> str:
    chosen = choose(question, set(question.seen), question.variants)
    parts = [f"{p.what}\n\n```python\n{p.source.rstrip()}\n```\n" for p in chosen]
    return "\n".join(parts) or f"{NOTHING_LEFT}\n"


def _reflection(question: ReflectionQuestion) -> str:
    expected = question.diagnosis.expected_speedup
    lessons, avoid, told = [], [], []
    for trial in question.trials:
        name, what = trial.candidate.name, trial.candidate.description
        verdict = trial.candidate.verdict
        if not verdict.correct:
            told.append(f"{name} was {verdict.outcome.value}: {verdict.reason}")
            if verdict.outcome not in (Outcome.NO_CODE, Outcome.UNPROVEN):
                avoid.append(f"{what} on {question.parent}: {verdict.outcome.value}")
            continue
        before, ratio = question.parent, trial.over_parent
        if trial.candidate.tuned_from is not None:
            before = trial.candidate.tuned_from
            origin = next(t for t in question.trials if t.candidate.name == before)
            ratio = ratio / origin.over_parent if ratio and origin.over_parent else None
        if ratio is None:
            told.append(f"{name} is correct; its time cannot be compared with {before}'s")
            continue
        told.append(f"{name} took {trial.candidate.measurement}, {_percent(ratio)}")
        lessons.append(f"{what} was {_percent(ratio)} than {before}")
        if ratio < POOR:
            avoid.append(f"{what} on kernels like {question.parent}")
    wanted = f"Expected up to {expected:.2f} times faster. " if expected else ""
    summary = wanted + ("; ".join(told) or "nothing was tried") + "."
    return _fenced(Reflection(summary=summary, lessons=lessons, patterns_to_avoid=avoid))


def _percent(ratio: float) -> str:
    if abs(ratio - 1) < 0.01:
        return "no faster or slower"
    if ratio >= 2:
        return f"{ratio:.1f} times faster"
    if ratio > 1:
        return f"{(1 - 1 / ratio) * 100:.0f}% faster"
    return f"{(1 / ratio - 1) * 100:.0f}% slower"
