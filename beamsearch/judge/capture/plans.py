"""A call that was recorded, as a plan.

A call is recorded as it runs once the kernel has settled: what an earlier call allocated and filled
is kept. What was computed in an earlier call, or while the kernel was imported, belongs to each
call: those steps stand before its own.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable
from itertools import zip_longest
from typing import Any

import torch
import triton

from beamsearch.judge.capture.compiling import Identity
from beamsearch.judge.capture.recorder import Noted, Recorder, Refused
from beamsearch.judge.capture.shadows import content
from beamsearch.judge.capture.standin import Memory, StandIn
from beamsearch.records.plan import (
    DTYPE_BYTES,
    Buffer,
    Container,
    Copy,
    Descriptor,
    DType,
    Fill,
    Kernel,
    Launch,
    Number,
    Operation,
    Plan,
    Pointer,
    Step,
    View,
)


def plan_of(recorder: Recorder, result: Any, capability: int) -> Plan:
    """The plan of the call that the recorder has just seen, which gave this result. Raises Refused.

    Memory that earlier calls were given, and this one uses, is no argument of it.
    """
    container: Container = "tensor"
    if type(result) in (tuple, list):
        container = "tuple" if type(result) is tuple else "list"
    results = [result] if container == "tensor" else list(result)
    for value in results:
        if not isinstance(value, StandIn):
            kind = type(value).__name__
            what = "a tensor on the host" if isinstance(value, torch.Tensor) else f"a {kind}"
            raise Refused(f"returns {what} where a tensor on the GPU is expected")
    return _Assembly(recorder, results).plan(container, capability)


class _Assembly:
    """One plan in the making."""

    def __init__(self, recorder: Recorder, results: list[StandIn]) -> None:
        self._call = recorder.call
        self._own = recorder.own
        self._results = results
        self._weights = {
            memory.given: memory
            for memory in recorder.memories.values()
            if memory.weight and memory.call == self._call
        }
        self._history = recorder.steps[: len(recorder.steps) - len(self._own)]
        self._prologue = self._computed_before()
        self._numbers: dict[Memory, int] = {}
        """In the order of the plan's buffers."""
        self._kernels: list[Kernel] = []

    def plan(self, container: Container, capability: int) -> Plan:
        """The plan. Raises Refused."""
        steps = self._filled_before()
        steps += [self._step(item) for item in self._prologue]
        steps += [self._step(item) for item in self._own]
        results = [self._view(value) for value in self._results]
        for value in self._results:
            if value.memory.role == "constant" or self._is_kept(value.memory):
                raise Refused(
                    "returns memory that it keeps between calls; two results must be able to live "
                    "at once, so allocate each"
                )
        return Plan(
            capability=capability,
            triton=triton.__version__,
            kernels=self._kernels,
            buffers=[self._buffer(memory) for memory in list(self._numbers)],
            steps=steps,
            results=results,
            container=container,
        )

    def _computed_before(self) -> list[Noted]:
        """Steps of earlier calls that computed what this call finds in memory it kept."""
        own = {_words(step) for step in self._own}
        needed = {m for s in self._own for m in s.memories() if self._is_computed(m)}
        needed |= {value.memory for value in self._results if self._is_computed(value.memory)}
        found: list[Noted] = []
        for step in reversed(self._history):
            touched = step.memories()
            if step.kind == "fill" or not needed.intersection(touched) or _words(step) in own:
                continue
            found.insert(0, step)
            needed |= {m for m in touched if self._is_computed(m)}
        return found

    def _is_old(self, memory: Memory) -> bool:
        return memory.role == "made" and memory.call < self._call

    def _is_computed(self, memory: Memory) -> bool:
        """Whether what it holds from earlier calls has to be computed in each."""
        return self._is_old(memory) and content(memory) is None

    def _is_kept(self, memory: Memory) -> bool:
        """Whether it keeps its content from one call to the next."""
        return self._is_old(memory) and not any(
            memory in step.memories() for step in self._prologue
        )

    def _filled_before(self) -> list[Step]:
        """Fills of memory that the prologue works on, which is made in each call."""
        made = [m for s in self._prologue for m in s.memories() if self._is_old(m)]
        return [
            self._fill(step) for memory in dict.fromkeys(made) for step in self._first_fills(memory)
        ]

    def _fill(self, step: Noted) -> Fill:
        return Fill(target=self._view(step.targets[0]), value=step.arguments[0])

    def _first_fills(self, memory: Memory) -> list[Noted]:
        """How it was filled, in the call that made it, before anything else was done with it."""
        found = []
        for step in self._history:
            if memory not in step.memories():
                continue
            if step.kind != "fill" or step.call != memory.call:
                break
            found.append(step)
        return found

    def _number(self, memory: Memory) -> int:
        if memory.weight:  # an earlier call's is as good: what was made of it is made again
            memory = self._weights.get(memory.given, memory)
        if memory not in self._numbers:
            if memory.role == "given" and memory.call != self._call:
                raise Refused("uses tensors that an earlier call was given; use this call's own")
            self._numbers[memory] = len(self._numbers)
        return self._numbers[memory]

    def _buffer(self, memory: Memory) -> Buffer:
        told: dict[str, Any] = {"role": memory.role, "bytes": memory.size, "given": memory.given}
        if memory.role == "constant":
            told["data"] = base64.b64encode(memory.data or b"")
        elif self._is_kept(memory):
            told["role"] = "kept"
            held = content(memory)
            if held is not None:
                told["data"] = base64.b64encode(held)
            else:
                told["fills"] = list(map(self._fill, self._first_fills(memory)))
        return Buffer(**told)

    def _view(self, tensor: StandIn) -> View:
        dtype, meta = str(tensor.dtype).removeprefix("torch."), tensor.meta
        if dtype not in DTYPE_BYTES:
            raise Refused(f"works on a tensor of {dtype}, which no plan can hold")
        return View(
            buffer=self._number(tensor.memory),
            dtype=dtype,
            offset=int(meta.storage_offset()),
            size=tuple(meta.shape),
            stride=tuple(meta.stride()),
        )

    def _step(self, noted: Noted) -> Step:
        if noted.kind == "fill":
            return self._fill(noted)
        if noted.kind == "copy":
            target, source = noted.targets[0], noted.arguments[0]
            return Copy(target=self._view(target), source=self._view(source))
        if noted.kind == "operation":
            return Operation(
                name=noted.name,
                arguments=[self._operand(value) for value in noted.arguments],
                named={name: self._operand(value) for name, value in noted.named.items()},
                targets=[self._view(target) for target in noted.targets],
                line=noted.line,
            )
        kernel = noted.named["kernel"]
        if kernel not in self._kernels:
            self._kernels.append(kernel)
        given = zip(noted.arguments, kernel.signature, strict=True)
        return Launch(
            **noted.named | {"kernel": self._kernels.index(kernel)},
            arguments=[self._argument(value, kind) for value, kind in given],
            line=noted.line,
        )

    def _operand(self, value: Any) -> Any:
        if isinstance(value, StandIn):
            return self._view(value)
        if isinstance(value, torch.dtype):
            return DType(dtype=str(value).removeprefix("torch."))
        if isinstance(value, list | tuple):
            return [self._operand(item) for item in value]
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise Refused(f"gives an operation of torch a {type(value).__name__}")

    def _argument(self, value: Any, kind: str) -> Any:
        if isinstance(value, StandIn):
            return self._pointer(value)
        base = getattr(value, "base", None)
        if isinstance(base, StandIn):
            return Descriptor(
                base=self._pointer(base),
                dtype=str(base.dtype).removeprefix("torch."),
                shape=tuple(map(int, value.shape)),
                strides=tuple(map(int, value.strides)),
                block_shape=tuple(map(int, value.block_shape)),
                padding=getattr(value, "padding", "zero"),
                round_f32_to_tf32=getattr(value, "round_f32_to_tf32", False),
                type=kind,
            )
        if not isinstance(value, bool | int | float):
            value = float(value) if "f" in kind else int(value)  # numpy's numbers, for instance
        return Number(type=kind, value=value)

    def _pointer(self, tensor: StandIn) -> Pointer:
        return Pointer(
            buffer=self._number(tensor.memory),
            offset=tensor.data_ptr() - tensor.memory.address,
        )


def _words(noted: Noted) -> tuple[Any, ...]:
    """A step in words that are the same in every call: memory by its size and what it is for."""
    return (noted.kind, noted.name, *_all_words([noted.arguments, noted.named, noted.targets]))


def _all_words(values: Any) -> Iterable[Any]:
    for value in values.values() if isinstance(values, dict) else values:
        if isinstance(value, StandIn):
            memory = value.memory
            place = value.data_ptr() - memory.address
            shape = (tuple(value.shape), tuple(value.meta.stride()), value.dtype)
            yield (memory.given, memory.size, place, *shape)
        elif isinstance(value, Kernel):
            yield (value.name, value.ttir, str(value.options))
        elif isinstance(value, list | tuple | dict):
            yield from _all_words(value)
        elif isinstance(getattr(value, "base", None), StandIn):
            yield from _all_words([value.base, value.shape, value.strides, value.block_shape])
        else:
            yield repr(value)


def differs(one: Plan, other: Plan) -> str | None:
    """How two calls of one kernel differ, or none: the same steps on buffers of the same kind."""
    if len(one.steps) != len(other.steps):
        return f"{len(one.steps)} steps in one call, {len(other.steps)} in another"
    pairs = zip_longest(*map(_deeds, (one, other)))
    number = next((number for number, (a, b) in enumerate(pairs) if a != b), None)
    if number is None:
        return None
    if number >= len(one.steps):
        return "memory is made, kept, filled or returned otherwise in two calls"
    step = one.steps[number]
    name = one.kernels[step.kernel].name if isinstance(step, Launch) else step.step
    return f"step {number} ({name}) is not the same in two calls"


def _deeds(plan: Plan) -> list[str]:
    # A hash in the place of the IR, which would stand there once a launch.
    told = [repr((kernel.name, kernel.ttir, kernel.options)) for kernel in plan.kernels]
    return Identity(plan).deeds([[hashlib.sha256(text.encode()).hexdigest()] for text in told])
