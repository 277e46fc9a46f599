"""A kernel on the shapes that decide: wrong at one is wrong, right at none is not shown correct."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from math import prod
from typing import Literal

from beamsearch.errors import ProblemError
from beamsearch.judge.rejection import INTERPRET_S, Log, Rejected, names_in, number_in
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.sandbox.processes import CandidateProcess
from beamsearch.judge.verification.deciding_shapes import Deciding, DecidingShape, deciding
from beamsearch.judge.verification.input_set import InputSet
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.oracle import as_outputs
from beamsearch.judge.verification.results import check_result, place, shapes
from beamsearch.judge.verification.stages import ask_once, bind
from beamsearch.problem.input_values import DISTRIBUTIONS, Distribution
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem
from beamsearch.records.verdict import Outcome, Stage

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
USUAL_BLOCK = 1024
"""The largest block of a kernel that does not tell it."""
FIRST: tuple[Distribution, ...] = ("rising", "normal")
ORDER = (*FIRST, *(name for name in DISTRIBUTIONS if name not in FIRST))
"""Of the input sets at the deciding shapes: what a loop of several blocks gets wrong is first."""
NOT_SHOWN = (
    "; a GPU would tell. Without one, what is launched at the true shape must take smaller shapes "
    "too"
)


Taken = Literal["right", "refused", "too long"]
"""How a kernel took a shape."""


class ShapeSets:
    """Input sets of every shape of one problem, each built when first needed; thread-safe."""

    def __init__(self, problem: Problem, seed: int, memory: SharedMemory) -> None:
        self._problem = problem
        self._seed = seed
        self._memory = memory
        self._lock = threading.Lock()
        self._sets: dict[tuple[tuple[str, int], ...], InputSets] = {}
        self._deciding: Deciding | None = None
        self._kind: tuple[bool, ...] | None = None
        self._long: dict[int, list[DecidingShape]] = {}

    def of(self, problem: Problem) -> InputSets:
        """The sets at the sizes of a shrunk problem."""
        key = tuple(sorted(problem.sizes.items()))
        with self._lock:
            if key not in self._sets:
                self._sets[key] = InputSets(problem, self._memory.device, self._memory, self._seed)
            return self._sets[key]

    def mend(self) -> None:
        """Repair what a candidate changed."""
        for sets in self._sets.values():
            sets.mend()

    def close(self) -> None:
        """Give all memory back."""
        for sets in self._sets.values():
            sets.close()

    def is_regular(self, problem: Problem) -> bool:
        """Whether the output has an input's shape there if it has it as a rule: where half of the
        columns are turned, an odd number of them is no shape of the problem."""
        with self._lock:
            if self._kind is None:
                assert self._deciding is not None
                kinds = [kind_of(p) for item in self._deciding.first() for p in item.problems]
                common, count = Counter(kinds).most_common(1)[0]
                is_rule = kind_of(self._problem) == common and 2 * count > len(kinds)
                self._kind = common if is_rule else ()
        if not any(self._kind):
            return True
        return all(has or not rule for rule, has in zip(self._kind, kind_of(problem), strict=True))

    @property
    def deciding(self) -> Deciding:
        """The shapes. Raises ProblemError where the problem cannot be shrunk."""
        with self._lock:
            if self._deciding is None:
                self._deciding = deciding(self._problem)
            return self._deciding

    def long(self, block: int) -> list[DecidingShape]:
        """Those with one long dimension, for a kernel of such blocks."""
        shapes = self.deciding
        with self._lock:
            if block not in self._long:
                self._long[block] = shapes.long(block)
            return self._long[block]


class Decision:
    """One kernel's way through the shapes."""

    def __init__(self, sets: ShapeSets, log: Log) -> None:
        self._sets = sets
        self._log = log
        self._left = WORK
        self._block = 0
        self._shown = False
        self._alike: set[InputSets] = set()
        """Shapes at which some call launched what the true shape does."""
        self._wrong: dict[InputSets, Rejected] = {}
        """Shapes at which a call that launched other functions was wrong."""
        self._why_not = ""
        """The first reason for which a shape showed nothing."""

    def smoke(self, process: CandidateProcess, sets: InputSets, drawn: Sequence[InputSet]) -> bool:
        """The smoke shapes, where a kernel that does not take them is not judged: whether it does.
        Raises Rejected."""
        self._left = SMOKE_WORK
        taken = True
        for number, inputs in enumerate(drawn):
            if number >= SMOKE_SETS and self._left < 0:
                break
            taken = self._tried(process, sets, inputs, Stage.SMOKE, "smoke shapes", None)
            if not taken:
                break
        self._left = WORK
        return taken

    def decide(self, opened: Callable[[], CandidateProcess], *, tiled: bool) -> None:
        """Every deciding shape; of many tiles where it is `tiled`. Raises Rejected."""
        self._process, self._opened = opened(), opened
        try:
            first = self._sets.deciding.first()
            for number, shape in enumerate(first):
                # A problem has as many long shapes as it has sizes, or more.
                self._try_shape(shape, len(first) - number + len(self._sets.deciding.free))
            for shape in self._sets.deciding.tiled() if tiled else []:
                self._try_shape(shape, TILED_SHARE)
            others = self._sets.long(self._block or USUAL_BLOCK)
            for number, shape in enumerate(others):
                self._try_shape(shape, len(others) - number)
        finally:
            self._process.end()
            self._log.output.append(self._process.output)
        if not self._shown:
            reason = f"no shape could show that it is right: {self._why_not}{NOT_SHOWN}"
            raise Rejected(Outcome.UNPROVEN, Stage.OTHER_SHAPES, reason)

    def _try_shape(self, shape: DecidingShape, remaining: int) -> None:
        """The smallest of the shape's problems, then the largest that by the work which that one
        took stays within a share of what is left for the `remaining` shapes."""
        if not shape.problems:
            return
        share = min(CALL_WORK, self._left / remaining)
        *larger, smallest = shape.problems
        before = self._left
        took = self._try_problem(shape.label, smallest, 1 if larger else shape.sets, share)
        each = (before - self._left) / volume(smallest) if took == "right" else 0.0
        for problem in larger if took != "too long" else ():
            if each * volume(problem) <= share:
                took = self._try_problem(shape.label, problem, shape.sets, share)
                if took != "too long":
                    return
        if took == "too long":
            self._log.not_checked.append(f"{shape.label}: it takes too long in the interpreter")

    def _try_problem(self, label: str, problem: Problem, count: int, share: float) -> Taken:
        """So many input sets of one problem, as far as the share of the work goes."""
        if not self._sets.is_regular(problem):
            return "refused"
        sets = self._sets.of(problem)
        try:
            drawn = sets.draw(count, ORDER)
        except ProblemError:
            return "refused"  # every output looks alike at these sizes
        before = self._left
        for inputs in drawn:
            try:
                if not self._tried(self._process, sets, inputs, Stage.OTHER_SHAPES, label, share):
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
        self,
        process: CandidateProcess,
        sets: InputSets,
        inputs: InputSet,
        stage: Stage,
        label: str,
        limit: float | None,
    ) -> bool:
        """Whether the kernel takes the shape. Raises Rejected where it is wrong there and launches
        the functions that it launches at the true shape, and where it takes too long."""
        name = inputs.label if stage is Stage.SMOKE else f"{label}, {inputs.label}"
        with sets.handout(inputs) as handout:
            where = place(inputs, handout)
            try:
                bind(process, f"{stage.value} {inputs.label}", handout, INTERPRET_S)
                answer = ask_once(process, inputs, handout, stage, INTERPRET_S, work=limit)
            except Rejected as rejection:
                if not refuses_shape(rejection):
                    raise
                self._shows_nothing(stage, label, rejection.reason)
                return False
            launched = set(names_in(answer.get("launched")))
            self._left -= number_in(answer.get("work"))
            self._block = max(self._block, int(number_in(answer.get("block"))))
            same = launched == set(self._log.launched)
            if same:
                self._alike.add(sets)
            try:
                compared = check_result(
                    answer, inputs, sets, handout, stage, where, process.touched
                )
            except Rejected as rejection:
                if sets in self._alike:
                    raise
                if sets not in self._wrong:
                    self._shows_nothing(stage, label, rejection.reason)
                self._wrong[sets] = rejection
                return True
            if same and sets in self._wrong:
                # What it launches depends on more than the shape: then the shape counts.
                raise self._wrong[sets]
            self._log.passed(stage, name, f"right on {shapes(handout)}{compared.excused}")
            self._tell_strides(stage, compared.strides)
            if same and stage is not Stage.SMOKE:
                self._shown = True
            elif not same:
                others = ", ".join(sorted(launched)) or "nothing"
                self._why_not = self._why_not or f"{where} it launches {others}"
            return True

    def _tell_strides(self, stage: Stage, strides: str) -> None:
        if strides and not any(check.name == "strides" for check in self._log.checks):
            self._log.reported(stage, "strides", False, strides)

    def _shows_nothing(self, stage: Stage, label: str, reason: str) -> None:
        self._why_not = self._why_not or reason
        self._log.specialised(stage, label, reason)


def kind_of(problem: Problem) -> tuple[bool, ...]:
    """Which inputs have the output's shape."""
    instance = instantiate(problem, "meta")
    output = as_outputs(instance.reference())[0]
    return tuple(getattr(value, "shape", None) == output.shape for value in instance.inputs)


def volume(problem: Problem) -> int:
    """The product of a problem's sizes, which bounds how its work grows."""
    return prod(max(1, size) for size in problem.sizes.values())


def refuses_shape(rejection: Rejected) -> bool:
    """Whether the kernel, or the interpreter, said that it does not do this shape."""
    if rejection.outcome is Outcome.TIMEOUT:
        return False
    unbound = rejection.outcome is Outcome.INVALID
    return rejection.raised or unbound or rejection.outcome is Outcome.UNPROVEN
