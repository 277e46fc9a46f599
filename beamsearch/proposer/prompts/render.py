"""Prompts: a question rendered from its template, within a budget of tokens.

The same question always gives the same text: nothing here reads a clock, a GPU or chance.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, get_args

from beamsearch.llm.types import approximate_tokens
from beamsearch.paths import data_folder
from beamsearch.problem.kernel import alike
from beamsearch.proposer.prompts import facts, outcomes, wording
from beamsearch.proposer.prompts.notes import Note, fitting, read_notes
from beamsearch.proposer.questions import (
    FirstQuestion,
    Purpose,
    Question,
    ReflectionQuestion,
    RepairQuestion,
    ReviewQuestion,
    Shown,
    VariantsQuestion,
)
from beamsearch.records.candidate import OPEN
from kernel_profiling.findings.findings import brought
from kernel_profiling.profile import FindingKind

if TYPE_CHECKING:
    from jinja2 import Environment

BUDGET: Mapping[Purpose, int] = dict.fromkeys(get_args(Purpose), 8_000) | {"repair": 12_000}
"""Tokens a prompt should have. Problem, kernel, profile and contract of the kernels seen so far
take 3,000 to 7,000; the rest is room for what was tried and for notes, which are cut to it."""
MOST_TOKENS = 16_000
"""Tokens a prompt may have where its kernel is long: above this the findings, the annotations and
the newest attempts are cut too."""
NOTES_BUDGET = 1_500
"""Tokens for notes on techniques: about seven, for more would be a textbook."""
KEPT_ATTEMPTS = 12
"""Newest attempts that outlive kernels in full and notes: three rounds of wins and losses."""
KEPT_NOTES = 2
"""Notes that outlive the last of the kernels in full: those that fit best."""
KEPT_LESSONS, LEAST_LESSONS = 12, 6
"""Newest lessons, and patterns, shown at most, and left where room is short: every attempt stands
above them anyway."""
REMEMBER: tuple[Purpose, ...] = ("diagnosis", "variants", "reflection")
"""Questions whose prompts hold what was tried and learned."""
KEPT_FINDINGS = 3
"""Findings that stay whatever the budget: the ranking puts what matters first."""
DIFF_STEPS = 10
"""Diffs are shortened by a tenth of their lines at a time."""
REASKED_CHARACTERS = 6_000
"""Of an unreadable reply, shown back to its author."""
ERROR_CHARACTERS = 2_400
"""Of what was wrong with it: a compiler's message with its lines, and more of a long list."""
REASK_MARK = "## Your previous answer could not be used"


def render(question: Question | FirstQuestion) -> str:
    """The prompt of a question, cut to its budget: oldest attempts first, then the slower of the
    best kernels, the notes that fit least, the fastest of these kernels, the last notes. Where it
    is still longer than MOST_TOKENS also further attempts, older lessons and patterns, lessons of
    earlier runs, lower findings, the annotations, the ends of diffs, the last of the kernels under
    review. The prompt says what was cut.

    The problem, the kernel and the contract are never cut. Where they alone pass the budget, the
    last notes stay as well.
    """
    steps, further = _cuts(question)
    cuts = _fewest(question, [], steps, BUDGET[question.purpose])
    if approximate_tokens(_render(question, cuts)) > BUDGET[question.purpose]:
        fewest = max(0, len(_notes(question)) - KEPT_NOTES)
        while cuts.count("note") > fewest:  # they are the last that were cut
            further.insert(0, cuts.pop())
    cuts = _fewest(question, cuts, further, MOST_TOKENS)
    return _render(question, cuts)


def _fewest(
    question: Question | FirstQuestion, before: list[str], steps: list[str], budget: int
) -> list[str]:
    """Cuts made before, and the fewest more that bring the prompt to its budget."""
    low, high = 0, len(steps)
    while low < high:
        middle = (low + high) // 2
        if approximate_tokens(_render(question, [*before, *steps[:middle]])) <= budget:
            high = middle
        else:
            low = middle + 1
    return [*before, *steps[:low]]


def reask(prompt: str, reply: str, error: object) -> str:
    """The prompt again, with the reply that could not be read and why."""
    if len(reply) > REASKED_CHARACTERS:
        reply = reply[:REASKED_CHARACTERS] + "\n… (cut)"
    told = str(error)
    if len(told) > ERROR_CHARACTERS:
        told = told[:ERROR_CHARACTERS] + "… (cut)"
    template = _environment().get_template("reask.j2")
    return template.render(prompt=prompt.rstrip(), mark=REASK_MARK, error=told, reply=reply)


def asked_again(prompt: str) -> int:
    """How many times `reask` was applied to a prompt."""
    return prompt.splitlines().count(REASK_MARK)


def _cuts(question: Question | FirstQuestion) -> tuple[list[str], list[str]]:
    """What may be cut to the budget, and what only where the prompt is longer than any may be; in
    the order it is cut, one word a step."""
    notes = ["note"] * len(_notes(question))
    if isinstance(question, FirstQuestion):
        return notes, []
    steps: list[str] = []
    further: list[str] = []
    memory = question.memory
    if question.purpose in REMEMBER:
        kept = min(KEPT_ATTEMPTS, len(memory.attempts))
        others = len(_best(question))
        steps += ["attempt"] * (len(memory.attempts) - kept)
        steps += ["kernel"] * (others - 1)
        steps += notes[KEPT_NOTES:]
        steps += ["kernel"] * min(1, others)
        steps += notes[:KEPT_NOTES]
        further += ["attempt"] * kept
        for word, told in (("lesson", memory.lessons), ("pattern", memory.patterns_to_avoid)):
            older = max(0, len(told) - LEAST_LESSONS)
            steps += [word] * older
            further += [word] * (len(told) - older)
        further += ["earlier"] * len(memory.earlier.lessons)
        further += ["finding"] * max(0, len(question.findings) - KEPT_FINDINGS)
    if question.purpose == "diagnosis" and question.annotated_source:
        further.append("margin")
    if isinstance(question, ReflectionQuestion | RepairQuestion):
        further += ["diff"] * DIFF_STEPS
    if isinstance(question, ReviewQuestion):
        further += ["review"] * (len(question.variants) - 1)
    return steps, further


def _render(question: Question | FirstQuestion, cuts: Iterable[str]) -> str:
    cut = Counter(cuts)
    if not isinstance(question, FirstQuestion) and question.purpose in REMEMBER:
        memory = question.memory
        cut["lesson"] = max(cut["lesson"], len(memory.lessons) - KEPT_LESSONS)
        cut["pattern"] = max(cut["pattern"], len(memory.patterns_to_avoid) - KEPT_LESSONS)
    notes = _notes(question)
    context: dict[str, Any] = {
        "problem": question.problem,
        "tolerance": facts.tolerance(question.problem.dtype),
        "spread_share": facts.spread_share(question.problem.dtype),
        "gpu": facts.gpu(question.gpu, question.problem.dtype),
        "notes": notes[: len(notes) - cut["note"]],
        "standing": facts.standing(question),
        "left_out": _left_out(cut),
    }
    if not isinstance(question, FirstQuestion):
        context |= _situation(question, cut) | _asked(question, cut)
    return _environment().get_template(f"{question.purpose}.j2").render(context)


def _situation(question: Question, cut: Counter[str]) -> dict[str, Any]:
    """What is shown of the kernel, its profile and the run."""
    memory, earlier = question.memory, question.memory.earlier
    memory = memory.with_values(
        attempts=memory.attempts[cut["attempt"] :],
        lessons=memory.lessons[cut["lesson"] :],
        patterns_to_avoid=memory.patterns_to_avoid[cut["pattern"] :],
        earlier=earlier.with_values(
            lessons=earlier.lessons[: len(earlier.lessons) - cut["earlier"]]
        ),
    )
    findings = question.findings[: len(question.findings) - cut["finding"]]
    return {
        "parent": question.parent,
        "parent_source": question.parent_source,
        "annotated_source": "" if cut["margin"] else facts.numbered(question.annotated_source),
        "profile_note": facts.profile_note(question.profile),
        "findings": [facts.finding(question, item) for item in findings],
        "rules": facts.rules(question.profile) if question.purpose == "diagnosis" else [],
        "memory": memory,
        "attempts": outcomes.by_parent(memory.attempts),
        "best": _best(question)[cut["kernel"] :],
        "direction": question.direction,
        "is_open": question.direction.finding == OPEN,
        "has_plan": question.purpose == "variants",
        "others": question.others,
        "hints": [outcomes.lines_of(text, outcomes.HINT_CHARACTERS) for text in question.hints],
        "direction_note": facts.direction_note(question),
        "patched": question.parent,
    }


def _asked(question: Question, cut: Counter[str]) -> dict[str, Any]:
    """What one kind of question adds."""
    keep = 1 - cut["diff"] / DIFF_STEPS
    told: dict[str, Any] = {}
    if isinstance(question, VariantsQuestion):
        told["other_way"] = outcomes.sketch(question.other_way)
        told |= {"variants": question.variants, "tuned": question.tuned}
        return told | {"plan": outcomes.plan(question.diagnosis)}
    if isinstance(question, ReflectionQuestion):
        told["trials"] = [outcomes.trial(question, item, keep) for item in question.trials]
        return told | {"plan": outcomes.plan(question.diagnosis), "gained": question.gained}
    if isinstance(question, RepairQuestion):
        return {"plan": outcomes.plan(question.diagnosis), **outcomes.repair(question, keep)}
    if isinstance(question, ReviewQuestion):
        return {"kernels": outcomes.kernels(question)[: len(question.variants) - cut["review"]]}
    return {}


def _best(question: Question) -> list[Shown]:
    """The best kernels but for those like the parent, which is shown; none to one who reflects."""
    if isinstance(question, ReflectionQuestion):
        return []
    return [k for k in question.memory.best if not alike(k.source, question.parent_source)]


def _notes(question: Question | FirstQuestion) -> list[Note]:
    """The notes for a question, as many as their own budget holds; none where none helps."""
    if question.purpose not in ("first", "diagnosis", "variants"):
        return []
    kinds = [*FindingKind, *brought()]
    text = question.problem.source
    if not isinstance(question, FirstQuestion):
        found = [str(finding.kind) for finding in question.findings]
        kinds = list(dict.fromkeys([question.direction.finding, *found]))
        text += question.parent_source
    capability = facts.capability(question.gpu)
    fit = fitting(read_notes(), findings=kinds, text=text, capability=capability)
    if isinstance(question, FirstQuestion):  # no finding ranks them
        fit.sort(key=lambda note: not note.mentions)
    kept: list[Note] = []
    left = NOTES_BUDGET
    for note in fit:
        left -= approximate_tokens(note.title + note.text)
        if left < 0:
            break
        kept.append(note)
    return kept


def _left_out(cut: Counter[str]) -> str:
    """What was cut, in words."""
    words = {
        "attempt": ("older attempt", "older attempts"),
        "kernel": ("slower kernel in full", "slower kernels in full"),
        "note": ("note on a technique", "notes on techniques"),
        "lesson": ("older lesson", "older lessons"),
        "pattern": ("older pattern to avoid", "older patterns to avoid"),
        "earlier": ("lesson of earlier runs", "lessons of earlier runs"),
        "finding": ("lower finding", "lower findings"),
        "review": ("kernel, the last", "kernels, the last"),
    }
    parts = [f"{cut[key]} {names[cut[key] > 1]}" for key, names in words.items() if cut[key]]
    if cut["margin"]:
        parts.append("the counters beside the source")
    if cut["diff"]:
        parts.append(f"the last {cut['diff'] * 100 // DIFF_STEPS}% of every diff")
    return ", ".join(parts)


@cache
def _environment() -> Environment:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(data_folder("prompts")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,  # so that what follows an include begins on its own line
        autoescape=False,  # plain text, not markup
    )
    environment.filters |= {
        "fence": _fence,
        "shape": wording.shape,
        "line": wording.one_line,
        "lesson": outcomes.lesson,
        "idea": outcomes.idea,
    }
    return environment


def _fence(text: str, language: str) -> str:
    """The text in a fence longer than any it holds."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{language}\n{text.rstrip()}\n{mark}"
