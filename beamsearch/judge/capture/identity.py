"""What a plan does to the GPU in one hash, so that two which do the same are seen to be one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from beamsearch.records.plan import (
    Copy,
    Descriptor,
    DType,
    Fill,
    Launch,
    Operand,
    Operation,
    Plan,
    Pointer,
    View,
)


class Identity:
    """A plan in words that leave out what does nothing on the GPU.

    Buffers are told in the order in which they are first met, and at the end each with its size and
    what it holds at the start; the plan's own numbers, lines, names and order of allocation are
    left out.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._order: dict[int, int] = {}
        self.steps = [self._step(step) for step in plan.steps]
        """Of each step; a launch's are what it is given."""
        results = [self._view(view) for view in plan.results]
        self._end = [f"returns {plan.container} {results}", *map(self._start, list(self._order))]

    def fingerprint(self, kernels: Sequence[Sequence[str]]) -> str:
        """One hash over all of it. `kernels`: in words, each of the plan's kernels as compiled."""
        deeds = []
        for step, words in zip(self._plan.steps, self.steps, strict=True):
            if isinstance(step, Launch):
                deeds.append("\n".join((*kernels[step.kernel], str(step.grid), *words)))
            else:
                deeds.append("\n".join(words))
        return hashlib.sha256("\n\n".join([*deeds, *self._end]).encode()).hexdigest()

    def _buffer(self, number: int) -> str:
        return f"buffer{self._order.setdefault(number, len(self._order))}"

    def _start(self, number: int) -> str:
        """What a buffer is before the call."""
        buffer = self._plan.buffers[number]
        data = None if buffer.data is None else hashlib.sha256(buffer.data).hexdigest()
        fills = [self._fill(fill) for fill in buffer.fills]
        told = f"{buffer.role} {buffer.given} {buffer.bytes} {data} {fills}"
        return f"{self._buffer(number)}: {told}"

    def _view(self, view: View) -> str:
        place = f"{self._buffer(view.buffer)}+{view.offset}"
        return f"{place} {view.dtype} {view.size} {view.stride}"

    def _argument(self, argument: object) -> str:
        if isinstance(argument, Pointer):
            return f"{self._buffer(argument.buffer)}+{argument.offset} bytes"
        if isinstance(argument, Descriptor):
            rest = argument.model_dump_json(exclude={"base"})
            return f"{self._argument(argument.base)} {rest}"
        return repr(argument)

    def _operand(self, operand: Operand) -> str:
        if isinstance(operand, View):
            return self._view(operand)
        if isinstance(operand, DType):
            return repr(operand)
        if isinstance(operand, list):
            return f"[{', '.join(map(self._operand, operand))}]"
        return repr(operand)

    def _fill(self, fill: Fill) -> str:
        return f"fill {self._view(fill.target)} with {fill.value!r}"

    def _step(self, step: Fill | Copy | Operation | Launch) -> tuple[str, ...]:
        if isinstance(step, Launch):
            return tuple(self._argument(argument) for argument in step.arguments)
        if isinstance(step, Fill):
            return (self._fill(step),)
        if isinstance(step, Copy):
            return (f"copy {self._view(step.source)} to {self._view(step.target)}",)
        given = [self._operand(operand) for operand in step.arguments]
        named = [f"{name!r}={self._operand(o)}" for name, o in sorted(step.named.items())]
        targets = [self._view(view) for view in step.targets]
        return (f"{step.name!r} of {given} {named} to {targets}",)
