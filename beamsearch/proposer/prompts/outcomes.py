"""What came of candidates, in the words a prompt uses.

A modelled number carries `~`, as in `facts`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from beamsearch.problem.kernel import unified_diff
from beamsearch.proposer.prompts.profiled import profiled
from beamsearch.proposer.prompts.wording import one_line, tilde
from beamsearch.proposer.questions import (
    Attempt,
    Diagnosis,
    Idea,
    ReflectionQuestion,
    RepairQuestion,
    ReviewQuestion,
    Sketch,
    Trial,
)
from beamsearch.records.candidate import Candidate
from beamsearch.records.verdict import Outcome, Stage, Verdict

LESSON_CHARACTERS = 400
"""More than the 40 words that are asked for: of the 436 in `artifacts/claude`, where no length was
asked, 404 have over 240 characters and 117 over 400."""
STAGES = {
    "load": "It could not be imported, bound or patched together: nothing was computed.",
    "policy": "Its source was refused before it was imported: the reason says what of it.",
    "review": "It was not run: a reviewer expects this. Where the reviewer is wrong, say so in the "
    "line of description and give the kernel again with the doubtful place made plain.",
    "compile": "Triton's compiler refused it; no value was computed.",
    "smoke": "It failed at small, odd shapes, which the true ones may hide: look at masks, sizes "
    "taken for constants, and at blocks larger than a dimension.",
    "true_shapes": "It passed at small shapes and failed at the true ones: look at offsets beyond "
    "2^31, at the size of the grid, and at what the launch needs in registers and shared memory.",
    "other_shapes": "It raised or failed at smaller shapes, one dimension long at a time: look at "
    "loops over several blocks, at what is carried between them, and at sizes it does not take.",
    "determinism": "The same inputs gave different results: look for races, uninitialised memory "
    "and atomics.",
    "timing": "It computes the problem; what it does beside that was refused when it was timed.",
    "memory": "It touches memory outside its tensors, even where results are right.",
}
"""Stage that failed -> what that says of the cause."""
CRASHED_AT_TIMING = (
    "It crashed on the GPU before any of its results was compared: its first calls there choose a "
    "configuration by time. Nothing is known yet of what it computes at the true shapes."
)
CHECK_CHARACTERS = 1_200
SHORTER = 0.8
"""A change is shown for the kernel where it is at most this share of its length."""
PLAN_CHARACTERS = {"bottleneck": 80, "cause": 1_200, "plan": 7_000}
"""A plan is asked for in 600 words; of 16 real ones the longest was 6,100 characters."""
HINT_CHARACTERS = 2_000
"""A person's advice is not cut: a longer one is refused when it is given."""
ITEMS = 8
"""Items of evidence, and predictions."""
SKETCH_CHARACTERS = 1_000
"""Of a sketch: its 120 words."""
ITEM_CHARACTERS = 600
"""An item of evidence may quote a line of code and its counters."""
ATTEMPT_CHARACTERS = 160
"""Of an attempt's description: what was tried, without the reason why it should be faster."""
AFTER = 2
"""Findings of the new kernel's profile that are told with their evidence."""
UNCHANGED = "The findings did not change."


def plan(diagnosis: Diagnosis) -> dict[str, Any]:
    """The fields of a diagnosis by name, and what was left out of them in words."""
    told = {name: getattr(diagnosis, name) for name in PLAN_CHARACTERS}
    shown: dict[str, Any] = {
        name: lines_of(text, PLAN_CHARACTERS[name]) for name, text in told.items()
    }
    cut = [name for name, text in told.items() if shown[name] != lines_of(text, sys.maxsize)]
    evidence = [one_line(item, ITEM_CHARACTERS) for item in diagnosis.evidence[:ITEMS]]
    if evidence != [one_line(item, len(item)) for item in diagnosis.evidence[:ITEMS]]:
        cut.append("evidence")
    left_out = [f"the end of the {' and of the '.join(cut)}"] if cut else []
    for what, items in (("evidence", diagnosis.evidence), ("predictions", diagnosis.predicted)):
        left_out += [f"{len(items) - ITEMS} more {what}"] if len(items) > ITEMS else []
    return shown | {
        "evidence": evidence,
        "expected_speedup": diagnosis.expected_speedup,
        "predicted": [
            {"finding": one_line(item.finding, 80), "bound_after": item.bound_after}
            for item in diagnosis.predicted[:ITEMS]
        ],
        "left_out": ", ".join(left_out),
    }


def lines_of(text: str, most: int) -> str:
    """The text in its own lines, cut to its first `most` characters; all but the first are
    indented, so that code keeps its shape and nothing reads as a heading of the prompt."""
    lines = [line.rstrip() for line in text.strip().splitlines() if line.strip()]
    told = "\n".join(lines[:1] + [f"  {line}" for line in lines[1:]])
    return told if len(told) <= most else told[: most - 1] + "…"


def sketch(item: Sketch | None) -> Sketch | None:
    """A sketch, on one line and no longer than asked for."""
    return item and item.with_values(idea=one_line(item.idea, SKETCH_CHARACTERS))


def idea(item: Idea) -> str:
    """How often a finding was gone after."""
    best = "" if item.best_speedup is None else f", best {item.best_speedup:.3g} x parent"
    return f"`{item.finding}` {item.tried} kernels, {item.correct} correct{best}"


def by_parent(attempts: Sequence[Attempt]) -> list[tuple[str, list[str]]]:
    """Attempts below the kernel that they were made from, each in one line; the kernel tried first
    stands first."""
    found: dict[str, list[str]] = {}
    for item in attempts:
        heading = "Given by a person" if item.is_persons else "First kernels"
        time = f" ({item.parent_time})" if item.parent_time else ""
        heading = f"From `{item.parent}`{time}" if item.parent else heading
        found.setdefault(heading, []).append(attempt(item))
    return list(found.items())


def attempt(item: Attempt) -> str:
    """An earlier candidate in one line."""
    told = [f"repairs `{item.repair_of}`"] if item.repair_of else []
    told += [f"tunes `{item.tuned_from}`"] if item.tuned_from else []
    result = [item.outcome] if item.outcome != "correct" else []
    result += [item.time] if item.time else []
    if item.speedup_over_parent is not None:
        mark = "~" if item.modelled else ""
        wanted = "" if item.expected is None else f" ({item.expected:.3g} expected)"
        again = " timed again in turns" if item.is_timed_again else ""
        result.append(f"{mark}{item.speedup_over_parent:.3g} x{again}{wanted}")
    reason = f": {one_line(item.reason)}" if item.reason else ""
    lineage = f" ({', '.join(told)})" if told else ""
    description = one_line(item.description, ATTEMPT_CHARACTERS)
    return f"`{item.name}`{lineage} {description} → {', '.join(result) or item.outcome}{reason}"


def verdict(candidate: Candidate, most: int = 600) -> str:
    """The judge's word in a line."""
    word = candidate.verdict
    stage = f" at {word.stage.value}" if word.stage else ""
    reason = f": {one_line(word.reason, most)}" if word.reason else ""
    return f"{word.outcome.value}{stage}{reason}"


def repair(question: RepairQuestion, keep_diff: float) -> dict[str, Any]:
    """What a repair's prompt says about the failure."""
    word = question.failed.verdict
    failed = [check for check in word.checks if not check.passed and not check.reported]
    return {
        "failed": question.failed,
        "failed_source": question.failed_source,
        "changed": _changed(question),
        "patch": question.patch,
        "verdict": verdict(question.failed, 2 * CHECK_CHARACTERS),
        "failed_checks": [
            f"{check.name}: {one_line(check.message, CHECK_CHARACTERS)}"
            for check in failed
            if check.message and check.message != word.reason
        ],
        "passed": ", ".join(
            dict.fromkeys(
                f"{check.stage.value} ({check.name})" for check in word.checks if check.passed
            )
        ),
        "stage_note": _stage_note(word),
        "earlier": [trial(question, item, keep_diff) for item in question.earlier],
        "patched": question.failed.name if not question.patch else question.parent,
    }


def _changed(question: RepairQuestion) -> str:
    """What the failed kernel changes in its parent; nothing where that is about as long as the
    parent, or where the failed kernel could not be put together from a patch."""
    names = question.parent, question.failed.name
    if question.patch:
        return ""
    change = unified_diff(question.parent_source, question.failed_source, *names)
    return change if len(change) < SHORTER * len(question.parent_source) else ""


def _stage_note(word: Verdict) -> str:
    """What the stage that failed says of the cause."""
    compared = any(check.stage is Stage.TRUE_SHAPES for check in word.checks if check.passed)
    if word.outcome is Outcome.CRASHED and word.stage is Stage.TIMING and not compared:
        return CRASHED_AT_TIMING
    return STAGES.get(word.stage.value if word.stage else "", "")


def kernels(question: ReviewQuestion) -> list[dict[str, str]]:
    """The kernels of a review, as sources, or as the patch that could not be applied."""
    return [
        {
            "description": item.description,
            "text": item.source if item.source is not None else f"{item.fault}\n{item.patch}",
            "language": "python" if item.source is not None else "text",
        }
        for item in question.variants
    ]


def trial(
    question: ReflectionQuestion | RepairQuestion, item: Trial, keep_diff: float
) -> dict[str, Any]:
    """A trial as its template shows it, with this share (0..1) of its diff's lines."""
    candidate = item.candidate
    lines = item.diff.splitlines()
    kept = lines[: round(len(lines) * keep_diff)]
    time, ratio = candidate.measurement, item.over_parent
    told = "" if time is None else f"{time}"
    if time is not None and ratio:
        told += f", {tilde(time)}{ratio:.3g} times as fast as its parent"
    return {
        "name": candidate.name,
        "repair_of": candidate.repair_of,
        "tuned_from": candidate.tuned_from,
        "description": one_line(candidate.description),
        "verdict": verdict(candidate),
        "time": told,
        "changes": _changes(question, item),
        "diff": "\n".join(kept),
        "language": "python" if item.whole else "diff",
    }


def _changes(question: ReflectionQuestion | RepairQuestion, item: Trial) -> list[str]:
    """What the second profile shows, and how the bounds of the findings moved, beside what was
    predicted; where none was taken, that."""
    if item.findings_after is None:
        return ["No profile was taken of it."] if item.candidate.verdict.correct else []
    before = {str(found.kind): found.gain_bound for found in question.findings}
    after = {str(found.kind): found.gain_bound for found in item.findings_after}
    wanted = {p.finding: p.bound_after for p in question.diagnosis.predicted}
    mark = "~" if question.profile.source == "compiler" else ""
    lines = []
    for kind in dict.fromkeys([*before, *after, *wanted]):
        was = f"{mark}{before[kind]:.3g} times" if kind in before else "nothing"
        now = f"{mark}{after[kind]:.3g}" if kind in after else "nothing"
        told = f", {wanted[kind]:.3g} was predicted" if kind in wanted else ""
        if was != now or told:
            lines.append(f"What {kind} could give: {was} before, {now} after{told}")
    for found in item.findings_after[:AFTER]:
        evidence = "; ".join(one_line(text) for text in found.evidence)
        lines.append(f"What holds it back now, {found.kind}: {found.title}. {evidence}")
    return [*profiled(item.profile_after, question.floor), *(lines or [UNCHANGED])]


def lesson(text: str) -> str:
    """A lesson or a pattern to avoid, on one line."""
    return one_line(text, LESSON_CHARACTERS)
