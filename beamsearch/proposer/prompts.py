"""Prompts: a question rendered from its template, within a budget of tokens.

The same question always gives the same text: nothing here reads a clock, a GPU or chance.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from beamsearch.proposer import facts
from beamsearch.proposer.questions import Purpose, Question, ReflectionQuestion, VariantsQuestion
from beamsearch.resources import data_folder

if TYPE_CHECKING:
    from jinja2 import Environment

BUDGET: Mapping[Purpose, int] = {"diagnosis": 12_000, "variants": 12_000, "reflection": 12_000}
"""Tokens a prompt may have. Problem, kernel, profile and contract of the kernels seen so far take
2,000 to 5,000; the rest is room for long kernels and for memory, which otherwise grows for ever."""
CHARACTERS_PER_TOKEN = 3.0
"""Fewer than the 3.2 to 4 that current tokenizers reach on code and English, so that the estimate
errs on the long side."""
KEPT_FINDINGS = 3
"""Findings that stay whatever the budget: the ranking puts what matters first."""
DIFF_STEPS = 10
"""Diffs are shortened by a tenth of their lines at a time."""
REASKED_CHARACTERS = 6_000
"""Of an unreadable reply, shown back to its author."""
REASK_MARK = "## Your previous answer could not be used"


def render(question: Question) -> str:
    """The prompt of a question, cut to its budget: oldest attempts first, then older lessons and
    patterns, lower findings, the annotations, the ends of diffs. The prompt says what was cut.

    The problem, the kernel and the contract are never cut, even where they alone pass the budget.
    """
    steps = _cuts(question)
    budget = BUDGET[question.purpose]
    low, high = 0, len(steps)  # the fewest cuts that fit lie between
    while low < high:
        middle = (low + high) // 2
        if approximate_tokens(_render(question, steps[:middle])) <= budget:
            high = middle
        else:
            low = middle + 1
    return _render(question, steps[:low])


def reask(prompt: str, reply: str, error: object) -> str:
    """The prompt again, with the reply that could not be read and why."""
    if len(reply) > REASKED_CHARACTERS:
        reply = reply[:REASKED_CHARACTERS] + "\n… (cut)"
    template = _environment().get_template("reask.j2")
    return template.render(prompt=prompt.rstrip(), mark=REASK_MARK, error=str(error), reply=reply)


def asked_again(prompt: str) -> int:
    """How many times `reask` was applied to a prompt."""
    return prompt.splitlines().count(REASK_MARK)


def approximate_tokens(text: str) -> int:
    """Tokens of a text, estimated from its length in bytes."""
    return math.ceil(len(text.encode()) / CHARACTERS_PER_TOKEN)


def _cuts(question: Question) -> list[str]:
    """What may be cut, in the order it is cut, one word a step."""
    memory = question.memory
    steps = ["attempt"] * len(memory.attempts)
    steps += ["lesson"] * len(memory.lessons) + ["pattern"] * len(memory.patterns_to_avoid)
    steps += ["finding"] * max(0, len(question.findings) - KEPT_FINDINGS)
    if question.purpose == "diagnosis" and question.annotated_source:
        steps.append("margin")
    if isinstance(question, ReflectionQuestion):
        steps += ["diff"] * DIFF_STEPS
    return steps


def _render(question: Question, cuts: Iterable[str]) -> str:
    cut = Counter(cuts)
    memory = question.memory.model_copy(
        update={
            "attempts": question.memory.attempts[cut["attempt"] :],
            "lessons": question.memory.lessons[cut["lesson"] :],
            "patterns_to_avoid": question.memory.patterns_to_avoid[cut["pattern"] :],
        }
    )
    findings = question.findings[: len(question.findings) - cut["finding"]]
    context: dict[str, Any] = {
        "problem": question.problem,
        "parent": question.parent,
        "parent_source": question.parent_source,
        "annotated_source": "" if cut["margin"] else question.annotated_source,
        "gpu": facts.gpu(question.gpu, question.problem.dtype),
        "standing": facts.standing(question),
        "profile_note": facts.profile_note(question.profile),
        "findings": [facts.finding(question, item) for item in findings],
        "memory": memory,
        "direction": question.direction,
        "direction_note": facts.direction_note(question),
        "left_out": _left_out(cut),
    }
    if isinstance(question, VariantsQuestion | ReflectionQuestion):
        context["diagnosis"] = question.diagnosis
    if isinstance(question, VariantsQuestion):
        context["variants"] = question.variants
    if isinstance(question, ReflectionQuestion):
        keep = 1 - cut["diff"] / DIFF_STEPS
        context["trials"] = [facts.trial(question, item, keep) for item in question.trials]
    return _environment().get_template(f"{question.purpose}.j2").render(context)


def _left_out(cut: Counter[str]) -> str:
    """What was cut, in words."""
    words = {
        "attempt": ("older attempt", "older attempts"),
        "lesson": ("older lesson", "older lessons"),
        "pattern": ("older pattern to avoid", "older patterns to avoid"),
        "finding": ("lower finding", "lower findings"),
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
        "shape": facts.shape,
        "line": facts.one_line,
        "attempt": facts.attempt,
    }
    return environment


def _fence(text: str, language: str) -> str:
    """The text in a fence longer than any it holds."""
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    mark = "`" * max(3, longest + 1)
    return f"{mark}{language}\n{text.rstrip()}\n{mark}"
