"""Calls that can be repeated: a plan on its memory, or the problem's reference on its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod

import torch

from beamsearch.judge.operations import COMPUTE, prepare
from beamsearch.judge.runner.buffers import PlanMemory
from beamsearch.judge.runner.launching import Function, PreparedLaunch
from beamsearch.judge.runner.parameters import parameters
from beamsearch.judge.runner.reference import BoundReference
from beamsearch.judge.sandbox.memory import GUARD_BYTES
from beamsearch.records.plan import Fill, Launch, Operation, Plan, Step


class PlanProgram:
    """A plan on memory of its own. Raises as `PlanMemory`, and ValueError for a plan that does not
    fit its kernels."""

    def __init__(
        self,
        plan: Plan,
        functions: Sequence[Function],
        given: Sequence[torch.UntypedStorage],
        device: str,
        guard: int = GUARD_BYTES,
    ) -> None:
        self._plan = plan
        self._functions = functions
        scratch = {
            number: prod((*step.grid, *binary.cluster)) * binary.scratch_bytes
            for number, step in enumerate(plan.steps)
            if isinstance(step, Launch) and (binary := functions[step.kernel].binary).scratch_bytes
        }
        self._memory = PlanMemory(plan, given, scratch, device, guard)
        self._steps = [self._prepared(number, step) for number, step in enumerate(plan.steps)]
        self._computing = [
            run
            for run, step in zip(self._steps, plan.steps, strict=True)
            if isinstance(step, Operation) and step.name in COMPUTE
        ]
        self._results = [self._memory.tensor(view) for view in plan.results]

    @property
    def computes(self) -> bool:
        """Whether torch computes a part of it."""
        return bool(self._computing)

    def refresh(self, fresh: bool, *, garbage: bool = False) -> None:
        """Make the memory what it is before a call; see `PlanMemory.refresh`."""
        with torch.inference_mode():
            self._memory.refresh(fresh, garbage=garbage)

    def enqueue(self) -> list[torch.Tensor]:
        """Give the call to the GPU, on the current stream. What it returns."""
        self._run(self._steps)
        return self._results

    def enqueue_computing(self) -> list[torch.Tensor]:
        """Only what torch computes in it."""
        self._run(self._computing)
        return []

    def broken_guards(self) -> list[str]:
        """Names of memory that was written to and should not have been; the GPU must be idle."""
        return self._memory.broken_guards()

    def _run(self, steps: Sequence[Callable[[int], object]]) -> None:
        stream = torch.cuda.current_stream().cuda_stream if self._plan.kernels else 0
        with torch.inference_mode():
            for run in steps:
                run(stream)

    def _prepared(self, number: int, step: Step) -> Callable[[int], object]:
        memory = self._memory
        if isinstance(step, Launch):
            if 0 in step.grid:
                return lambda stream: None
            function, scratch = self._functions[step.kernel], memory.scratch(number)
            triton, addresses = self._plan.triton, memory.addresses
            packed = parameters(step, function.binary, triton, addresses, scratch)
            return PreparedLaunch(function, step.grid, packed).enqueue
        if isinstance(step, Operation):
            run = prepare(step, memory.tensor)
            return lambda stream: run()
        target = memory.tensor(step.target)
        if isinstance(step, Fill):
            value = step.value
            return lambda stream: target.fill_(value)
        source = memory.tensor(step.source)
        return lambda stream: target.copy_(source)


class ReferenceProgram:
    """The reference, or what torch.compile made of it: PyTorch's own, which needs no guards."""

    def __init__(self, call: BoundReference) -> None:
        self._call = call

    def refresh(self, fresh: bool, *, garbage: bool = False) -> None:
        """Have it ready for a call; the reference keeps nothing between calls."""
        with torch.inference_mode():
            self._call.refresh()

    def enqueue(self) -> list[torch.Tensor]:
        """As a plan's."""
        with torch.inference_mode():
            result = self._call()
        return [*result] if isinstance(result, tuple | list) else [result]

    def broken_guards(self) -> list[str]:
        """None."""
        return []
