"""A kernel on shapes other than its own: wrong at one that it takes is wrong. Without a GPU they
decide: a kernel that is right at none of them is not shown correct."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod
from typing import Literal

from beamsearch.errors import ProblemError, ShortOfMemory, Stopped
from beamsearch.judge.capture.ahead import USUAL_BLOCK
from beamsearch.judge.capture.forms import Captured
from beamsearch.judge.rejection import (
    FIRST_CALL_S,
    GPU_CALL_S,
    INTERPRET_S,
    Log,
    Rejected,
    names_in,
    number_in,
)
from beamsearch.judge.sandbox.processes import CandidateProcess
from beamsearch.judge.verification.deciding_shapes import (
    LARGE_ELEMENTS,
    DecidingShape,
    deciding,
    is_regular,
    long_shapes,
)
from beamsearch.judge.verification.inputs import InputSet, InputSets
from beamsearch.judge.verification.robustness import check_not_a_number
from beamsearch.judge.verification.stages import (
    Loader,
    ask_once,
    bind,
    check_result,
    place,
    run_sets,
    tell_right,
)
from beamsearch.problem.input_values import DISTRIBUTIONS, Distribution
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import integer_sizes, shrink
from beamsearch.records.verdict import Outcome, Reach, Stage

WORK = 180_000.0
"""Interpreted operations, of about 25 microseconds, that all deciding shapes of a kernel may take:
a count and no clock, so that a verdict is the same on every machine."""
SMOKE_WORK = 200_000.0
"""The same for the smoke shapes, beyond the first few sets."""
SMOKE_SETS = 3
"""Sets that a kernel is run on however long they take."""
CALL_WORK = 90_000.0
"""The same for one call: a row of a million elements in blocks of a thousand, three times."""
TILED_SHARE = 2
"""A shape of many tiles may take half of what is left: fewer tiles show nothing."""
FIRST: tuple[Distribution, ...] = ("rising", "normal")
ORDER = (*FIRST, *(name for name in DISTRIBUTIONS if name not in FIRST))
"""Of the input sets at the deciding shapes: what a loop of several blocks gets wrong is first."""
NOT_SHOWN = (
    "; a GPU would tell. Without one, what is launched at the true shape must take smaller shapes "
    "too"
)
SHRUNK = "shrunk shapes"
GPU_SETS = 2
"""Input sets at a deciding shape on a GPU, the rising one first; the shrunk shapes meet all."""
MOST_GPU_SHAPES = 7
"""Deciding shapes of one kernel on a GPU, each of which is captured and compiled."""


class Decision:
    """One kernel's way through the shapes, in the interpreter."""

    def __init__(self, sets: InputSets, log: Log) -> None:
        self._problem = sets.problem
        self._sets = sets
        self._log = log
        self._launched = set(log.launched)
        """What it launches at the true shape."""
        self._left = WORK
        self._call_work = 0.0
        """What the last call took."""
        self._block = 0
        self._shown = False
        self._alike: set[InputSets] = set()
        """Shapes at which some call launched what the true shape does."""
        self._wrong: dict[InputSets, Rejected] = {}
        """Shapes at which a call that launched other functions was wrong."""
        self._strides = ""
        self._why_not = ""
        """The first reason for which a shape showed nothing."""
        self.given_up = threading.Event()
        """Set once nobody waits for the outcome: no further shape is tried then."""
        self._not_run = ""
        """The first thing in the kernel that the interpreter cannot run: no shape helps there."""

    def smoke(self, process: CandidateProcess, drawn: Sequence[InputSet]) -> bool:
        """The smoke shapes, where a kernel that does not take them is not judged: whether it does.
        Raises Rejected."""
        self._process, self._left = process, SMOKE_WORK
        taken = all(
            self._tried(inputs, Stage.SMOKE, "smoke shapes")
            for number, inputs in enumerate(drawn)
            if number < SMOKE_SETS or self._left >= 0
        )
        self._left = WORK
        return taken

    def decide(self, opened: Callable[[], CandidateProcess], log: Log, *, tiled: bool) -> None:
        """Every deciding shape, noted in this log; of many tiles where it is `tiled`. Raises
        Rejected."""
        self._process, self._opened, self._log = opened(), opened, log
        found = deciding(self._problem)
        try:
            first = found.first()
            for number, shape in enumerate(first):
                # A problem has as many long shapes as it has sizes, or more.
                self._try_shape(shape, len(first) - number + len(found.free))
            for shape in found.tiled() if tiled else []:
                self._try_shape(shape, TILED_SHARE)
            others = long_shapes(self._problem, self._block or USUAL_BLOCK)
            for number, shape in enumerate(others):
                self._try_shape(shape, len(others) - number)
        finally:
            self._process.end()
            self._log.output.append(self._process.output)
        if not self._shown:
            reason = f"no shape could show that it is right: {self._why_not}{NOT_SHOWN}"
            raise Rejected(Outcome.UNPROVEN, Stage.OTHER_SHAPES, self._not_run or reason)

    def _try_shape(self, shape: DecidingShape, remaining: int) -> None:
        """The smallest of the shape's problems, then the largest that by the work of smaller ones
        stays within a share of what is left for the `remaining` shapes; and larger ones where that
        took less than was thought, as with blocks that are padded anyway."""
        if not shape.problems:
            return
        share = min(CALL_WORK, self._left / remaining)
        *larger, problem = shape.problems
        known: list[tuple[int, float]] = []
        took = self._try_problem(shape.label, problem, 1 if larger else shape.sets, share)
        while took == "right":
            known.append((_volume(problem), self._call_work))
            fitting = [item for item in larger if _expected(known, _volume(item)) <= share]
            larger = [item for item in larger if item not in fitting]
            if not fitting:
                return
            for problem in fitting:
                took = self._try_problem(shape.label, problem, shape.sets, share)
                if took != "too long":
                    break
        if took == "too long":
            self._log.not_checked.append(f"{shape.label}: it takes too long in the interpreter")

    def _try_problem(
        self, label: str, problem: Problem, count: int, share: float
    ) -> Literal["right", "refused", "too long"]:
        """How the kernel took so many input sets of one problem, as far as the share of the work
        goes."""
        if self.given_up.is_set():
            raise Stopped("the kernel was rejected for another reason")
        if not is_regular(self._problem, problem):
            return "refused"
        try:
            drawn = self._sets.at(problem).draw(count, ORDER)
        except ProblemError:
            return "refused"  # every output looks alike at these sizes
        before = self._left
        for inputs in drawn:
            try:
                if not self._tried(inputs, Stage.OTHER_SHAPES, label, share):
                    return "refused"
            except Rejected as rejection:
                if rejection.outcome is not Outcome.TIMEOUT:
                    raise
                self._left -= rejection.work
                self._why_not = self._why_not or rejection.reason
                # What it keeps between calls is as the call left it that was not let finish.
                self._process.end()
                self._process = self._opened()
                return "too long"
            if 2 * (before - self._left) > share:
                break  # another set would take as much again
        return "right"

    def _tried(
        self, inputs: InputSet, stage: Stage, label: str, limit: float | None = None
    ) -> bool:
        """Whether the kernel takes the shape. Raises Rejected where it is wrong there and launches
        the functions that it launches at the true shape, and where it takes too long."""
        log, sets, process = self._log, inputs.sets, self._process
        with inputs.handout() as handout:
            try:
                bind(process, handout, INTERPRET_S)
                answer = ask_once(process, handout, stage, INTERPRET_S, work=limit)
            except Rejected as rejection:
                outcome = rejection.outcome
                refused = rejection.raised or outcome in (Outcome.INVALID, Outcome.UNPROVEN)
                if not refused or outcome is Outcome.TIMEOUT:
                    raise  # neither the kernel nor the interpreter said that it is not for this
                self._shows_nothing(stage, label, rejection)
                return False
            launched = set(names_in(answer.get("launched")))
            self._call_work = number_in(answer.get("work"))
            self._left -= self._call_work
            self._block = max(self._block, int(number_in(answer.get("block"))))
            same = launched == self._launched
            if same:
                self._alike.add(sets)
            try:
                found = check_result(process, answer, handout, stage)
            except Rejected as rejection:
                if sets in self._alike:
                    raise
                if sets not in self._wrong:
                    self._shows_nothing(stage, label, rejection)
                self._wrong[sets] = rejection
                return True
            if same and sets in self._wrong:
                # What it launches depends on more than the shape: then the shape counts.
                raise self._wrong[sets]
            name = inputs.label if stage is Stage.SMOKE else f"{label}, {inputs.label}"
            tell_right(log, stage, name, handout, found)
            if found.strides and not self._strides:
                self._strides = found.strides
                log.reported(stage, "strides", False, found.strides)
            self._shown |= same and stage is not Stage.SMOKE
            if not same:
                others = ", ".join(sorted(launched)) or "nothing"
                self._why_not = self._why_not or f"{place(handout)} it launches {others}"
            return True

    def _shows_nothing(self, stage: Stage, label: str, rejection: Rejected) -> None:
        self._why_not = self._why_not or rejection.reason
        if rejection.outcome is Outcome.UNPROVEN:
            self._not_run = self._not_run or rejection.reason
        self._log.specialised(stage, label, rejection.reason)


def _expected(known: Sequence[tuple[int, float]], volume: int) -> float:
    """The work at a volume by what it was at others: in proportion to one, on the line through the
    last two."""
    last, work = known[-1]
    slope = work / last
    if len(known) > 1:
        before, less = known[-2]
        slope = max(0.0, (work - less) / max(1, last - before))
    return work + slope * (volume - last)


def _volume(problem: Problem) -> int:
    """The product of a problem's sizes, which bounds how its work grows."""
    return prod(max(1, size) for size in problem.sizes.values())


def shapes_for(problem: Problem, block: int) -> list[tuple[str, Problem]]:
    """The shapes that decide on a GPU for a kernel of such blocks. Of a problem that cannot be
    shrunk as far as the interpreter needs it, such as one with a fixed image, the one that a GPU
    takes in its stride; none where there is none."""
    try:
        small, found = shrink(problem), deciding(problem)
    except ProblemError:
        for most in sorted(LARGE_ELEMENTS):
            with suppress(ProblemError):
                small = shrink(problem, most)
                return [(SHRUNK, small)] if small.sizes != integer_sizes(problem) else []
        return []
    # At its true sizes a kernel is run anyway.
    long = [item for item in long_shapes(problem, block) if item.label.startswith("over")]
    chosen = [(item.label, item.problems[0]) for item in (*found.first(), *long) if item.problems]
    every = [("equal sizes", found.little), *chosen]
    regular = [(label, shape) for label, shape in every if is_regular(problem, shape)]
    return [(SHRUNK, small), *regular[:MOST_GPU_SHAPES]]


def check_elsewhere(
    captured: Captured, sets: InputSets, load: Loader, log: Log, *, nan: bool, strict: bool
) -> None:
    """The shapes of `shapes_for`, on a GPU; needs the lane. A kernel that refuses one, or launches
    other functions there, is made for others. `nan`: whether to tell what becomes of not-a-number,
    which decides where `strict`. Raises Rejected where the kernel is wrong."""
    log.reach = Reach.GENERAL
    if not captured.elsewhere:
        log.reach = None
        log.not_checked.append("other shapes: the problem cannot be shrunk")
    for item in captured.elsewhere:
        if isinstance(item.form, Rejected):
            log.specialised(Stage.OTHER_SHAPES, item.label, item.form.reason)
            continue
        if item.form.launched != captured.log.launched:
            others = f"there it launches {', '.join(item.form.launched)}, not tried on the GPU"
            log.specialised(Stage.OTHER_SHAPES, item.label, others)
            continue
        there, shrunk = sets.at(item.problem), item.label == SHRUNK
        stage = Stage.SMOKE if shrunk else Stage.OTHER_SHAPES
        count, order = (len(DISTRIBUTIONS), DISTRIBUTIONS) if shrunk else (GPU_SETS, ORDER)
        try:
            drawn = there.draw(count, order)
            with load(item.label, item.form) as replay:
                run_sets(replay, drawn, stage, log, GPU_CALL_S, FIRST_CALL_S)
                if shrunk and nan:
                    check_not_a_number(replay, there, log, GPU_CALL_S, strict=strict)
        except ShortOfMemory:
            raise
        except ProblemError as error:
            log.not_checked.append(f"{item.label}: {error}")
        except Rejected as rejection:
            if rejection.outcome is not Outcome.WRONG:
                raise
            hint = "; raise at shapes that the kernel is not made for"
            reason = f"{item.label}: {rejection.reason}{hint}"
            raise Rejected(Outcome.WRONG, stage, reason) from rejection
