"""What a plan does to the GPU in one hash, so that two which do the same are seen to be one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from beamsearch.records.plan import Copy, Descriptor, Fill, Launch, Operation, Plan, Pointer, View


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
        results = list(map(self._words, plan.results))
        self._end = [f"returns {plan.container} {results}", *map(self._start, list(self._order))]

    def fingerprint(self, kernels: Sequence[Sequence[str]]) -> str:
        """One hash over all of it. `kernels`: in words, each of the plan's kernels as compiled."""
        deeds = []
        for step, words in zip(self._plan.steps, self.steps, strict=True):
            kernel = (*kernels[step.kernel], str(step.grid)) if isinstance(step, Launch) else ()
            deeds.append("\n".join((*kernel, *words)))
        return hashlib.sha256("\n\n".join([*deeds, *self._end]).encode()).hexdigest()

    def _step(self, step: Fill | Copy | Operation | Launch) -> tuple[str, ...]:
        if isinstance(step, Launch):
            return tuple(map(self._words, step.arguments))
        if isinstance(step, Fill):
            return (self._fill(step),)
        if isinstance(step, Copy):
            return (f"copy {self._words(step.source)} to {self._words(step.target)}",)
        given = list(map(self._words, step.arguments))
        named = [f"{name!r}={self._words(o)}" for name, o in sorted(step.named.items())]
        return (f"{step.name!r} of {given} {named} to {list(map(self._words, step.targets))}",)

    def _fill(self, fill: Fill) -> str:
        return f"fill {self._words(fill.target)} with {fill.value!r}"

    def _words(self, value: object) -> str:
        """Whatever a step is given."""
        if isinstance(value, View):
            place = f"{self._buffer(value.buffer)}+{value.offset}"
            return f"{place} {value.dtype} {value.size} {value.stride}"
        if isinstance(value, Pointer):
            return f"{self._buffer(value.buffer)}+{value.offset} bytes"
        if isinstance(value, Descriptor):
            return f"{self._words(value.base)} {value.model_dump_json(exclude={'base'})}"
        if isinstance(value, list):
            return f"[{', '.join(map(self._words, value))}]"
        return repr(value)

    def _buffer(self, number: int) -> str:
        return f"buffer{self._order.setdefault(number, len(self._order))}"

    def _start(self, number: int) -> str:
        """What a buffer is before the call."""
        buffer = self._plan.buffers[number]
        data = None if buffer.data is None else hashlib.sha256(buffer.data).hexdigest()
        told = f"{buffer.role} {buffer.given} {buffer.bytes} {data}"
        return f"{self._buffer(number)}: {told} {list(map(self._fill, buffer.fills))}"
