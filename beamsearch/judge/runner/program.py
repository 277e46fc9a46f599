"""Calls that can be repeated: a plan on its memory, or the problem's reference on its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from beamsearch.judge.operations import COMPUTE, prepare
from beamsearch.judge.runner.buffers import PlanMemory
from beamsearch.judge.runner.launching import Function, PreparedLaunch, blocks
from beamsearch.judge.runner.parameters import parameters
from beamsearch.judge.sandbox.memory import GUARD_BYTES
from beamsearch.records.plan import Fill, Launch, Operation, Plan


class Program(Protocol):
    """One call, bound: everything that it needs is there."""

    def refresh(self, fresh: bool, *, garbage: bool = False) -> None:
        """Make the memory what it is before a call; see `PlanMemory.refresh`."""

    def enqueue(self) -> list[torch.Tensor]:
        """Give the call to the GPU, on the current stream. What it returns."""

    def broken_guards(self) -> list[str]:
        """Names of memory that was written to and should not have been; the GPU must be idle."""


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
            number: size
            for number, step in enumerate(plan.steps)
            if isinstance(step, Launch) and (size := self._scratch_bytes(step))
        }
        self._memory = PlanMemory(plan, given, scratch, device, guard)
        self._has_launches = bool(plan.launches)
        self._steps = [self._prepare(number) for number in range(len(plan.steps))]
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
        with torch.inference_mode():
            self._memory.refresh(fresh, garbage=garbage)

    def enqueue(self) -> list[torch.Tensor]:
        self._run(self._steps)
        return self._results

    def enqueue_computing(self) -> list[torch.Tensor]:
        """Only what torch computes in it."""
        self._run(self._computing)
        return []

    def broken_guards(self) -> list[str]:
        return self._memory.broken_guards()

    def _run(self, steps: Sequence[Callable[[int], object]]) -> None:
        stream = torch.cuda.current_stream().cuda_stream if self._has_launches else 0
        with torch.inference_mode():
            for run in steps:
                run(stream)

    def _prepare(self, number: int) -> Callable[[int], object]:
        """What runs a step, given the stream."""
        step, tensor = self._plan.steps[number], self._memory.tensor
        if isinstance(step, Launch):
            return self._prepare_launch(number, step)
        if isinstance(step, Operation):
            run = prepare(step, tensor)
            return lambda stream: run()
        target = tensor(step.target)
        if isinstance(step, Fill):
            value = step.value
            return lambda stream: target.fill_(value)
        source = tensor(step.source)
        return lambda stream: target.copy_(source)

    def _prepare_launch(self, number: int, step: Launch) -> Callable[[int], object]:
        if 0 in step.grid:
            return lambda stream: None
        function = self._functions[step.kernel]
        packed = parameters(
            step,
            function.binary,
            self._plan.triton,
            self._memory.addresses,
            self._memory.scratch(number),
        )
        return PreparedLaunch(function, step.grid, packed).enqueue

    def _scratch_bytes(self, step: Launch) -> int:
        x, y, z = step.grid
        binary = self._functions[step.kernel].binary
        return x * y * z * blocks(binary) * binary.scratch_bytes


class ReferenceProgram:
    """The reference, or what torch.compile made of it: PyTorch's own, which needs no guards."""

    def __init__(self, call: Callable[[], Any]) -> None:
        self._call = call

    def refresh(self, fresh: bool, *, garbage: bool = False) -> None:
        """Leave the memory as it is: the reference keeps nothing between calls."""

    def enqueue(self) -> list[torch.Tensor]:
        with torch.inference_mode():
            result = self._call()
        return [*result] if isinstance(result, tuple | list) else [result]

    def broken_guards(self) -> list[str]:
        return []
