"""A kernel on a GPU at shapes other than its own: wrong at one that it accepts is wrong."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

from beamsearch.errors import ProblemError
from beamsearch.judge.capture.ahead import Captured, Form
from beamsearch.judge.rejection import FIRST_CALL_S, GPU_CALL_S, Log, Rejected
from beamsearch.judge.runner.client import Replay
from beamsearch.judge.verification.decide import ORDER, ShapeSets
from beamsearch.judge.verification.robustness import check_not_a_number
from beamsearch.judge.verification.stages import run_sets
from beamsearch.problem.input_values import DISTRIBUTIONS
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.records.verdict import Outcome, Reach, Stage

SHRUNK = "shrunk shapes"
SETS = 2
"""Input sets at a deciding shape, the rising one first; the shrunk shapes meet all."""
MOST_SHAPES = 7
"""Deciding shapes of one kernel, each of which is captured and compiled."""

Loader = Callable[[str, Form], AbstractContextManager[Replay]]


def shapes_for(sets: ShapeSets, problem: Problem, block: int) -> list[tuple[str, Problem]]:
    """The shapes that decide for a kernel of such blocks; none where it cannot be shrunk."""
    try:
        small, deciding = shrink(problem), sets.deciding
    except ProblemError:
        return []
    shapes = [("equal sizes", deciding.little)]
    shapes += [(item.label, item.problems[0]) for item in deciding.first() if item.problems]
    # At its true sizes a kernel is run anyway.
    shapes += [
        (item.label, item.problems[0])
        for item in sets.long(block)
        if item.problems and item.label.startswith("over")
    ]
    regular = [(label, problem) for label, problem in shapes if sets.is_regular(problem)]
    return [(SHRUNK, small), *regular[:MOST_SHAPES]]


class OtherShapes:
    """One kernel's way through the other shapes. Needs the lane."""

    def __init__(self, sets: ShapeSets, load: Loader, log: Log, *, nan: bool, strict: bool) -> None:
        """`nan`: whether to tell what becomes of not-a-number, which decides where `strict`."""
        self._sets = sets
        self._load = load
        self._log = log
        self._nan = nan
        self._strict = strict

    def run(self, captured: Captured) -> None:
        """All shapes. A kernel that refuses one, or launches other functions there, is made for
        others. Raises Rejected where it is wrong."""
        self._log.reach = Reach.GENERAL
        if not captured.elsewhere:
            self._log.reach = None
            self._log.not_checked.append("other shapes: the problem cannot be shrunk")
        own = captured.log.launched
        for item in captured.elsewhere:
            if isinstance(item.form, Rejected):
                self._log.specialised(Stage.OTHER_SHAPES, item.label, item.form.reason)
            elif item.form.launched != own:
                others = ", ".join(item.form.launched)
                told = f"it launches others there: {others}"
                self._log.specialised(Stage.OTHER_SHAPES, item.label, told)
            else:
                self._try(item.label, item.problem, item.form)

    def _try(self, label: str, problem: Problem, form: Form) -> None:
        sets = self._sets.of(problem)
        stage = Stage.SMOKE if label == SHRUNK else Stage.OTHER_SHAPES
        try:
            shrunk = label == SHRUNK
            drawn = sets.draw(*((len(DISTRIBUTIONS), DISTRIBUTIONS) if shrunk else (SETS, ORDER)))
            with self._load(label, form) as replay:
                run_sets(replay, sets, drawn, stage, self._log, GPU_CALL_S, FIRST_CALL_S)
                if label == SHRUNK and self._nan:
                    check_not_a_number(replay, sets, self._log, GPU_CALL_S, strict=self._strict)
        except ProblemError as error:
            self._log.not_checked.append(f"{label}: {error}")
        except Rejected as rejection:
            hint = "; raise at shapes that the kernel is not made for"
            if rejection.outcome is Outcome.WRONG:
                reason = f"{label}: {rejection.reason}{hint}"
                raise Rejected(Outcome.WRONG, stage, reason) from rejection
            raise
