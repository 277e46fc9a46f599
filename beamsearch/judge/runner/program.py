"""Calls that can be repeated: a plan on its memory, or the problem's reference on its arguments."""

import secrets
from collections.abc import Callable, Mapping, Sequence
from math import prod

import torch

from beamsearch.judge.operations import COMPUTE, prepare
from beamsearch.judge.runner.launching import Function, PreparedLaunch, parameters
from beamsearch.judge.runner.reference import BoundReference
from beamsearch.judge.sandbox.memory import GUARD_BYTES
from beamsearch.records.plan import Fill, Launch, Operation, Plan, Step, View

_GUARD = 0xFF
"""Every byte of a guard: not a number in floating-point types, -1 in integers."""
_POISONS = (_GUARD, 0x7F)
"""Bytes of memory that a call allocates, one of them drawn before each call: what is left unwritten
shows as no number, or as one that is far too large, and no kernel can count on either."""


class Guarded:
    """Memory between two guards, at an address that 256 divides.

    Raises torch.OutOfMemoryError where there is none.
    """

    def __init__(self, size: int, device: str, guard: int) -> None:
        self.whole = torch.empty(size + 2 * guard, dtype=torch.uint8, device=device)
        self.data = self.whole[guard : guard + size]
        self._guards = (self.whole[:guard], self.whole[guard + size :])

    def guard(self) -> None:
        """Put the guards back."""
        for guard in self._guards:
            guard.fill_(_GUARD)

    def least(self) -> torch.Tensor:
        """The least byte of the guards."""
        return torch.minimum(*(guard.amin() for guard in self._guards))


class PlanMemory:
    """A plan's buffers: the given ones as the judge handed them out, all others our own.

    `scratch` is bytes of global scratch, by the step of their launch; `guard` the bytes before and
    behind each buffer, the given ones included (none under a sanitizer, which has eyes of its own).
    Raises ValueError where a given storage is smaller than the plan says, torch.OutOfMemoryError
    where memory is short.
    """

    def __init__(
        self,
        plan: Plan,
        given: Sequence[torch.UntypedStorage],
        scratch: Mapping[int, int],
        device: str,
        guard: int = GUARD_BYTES,
    ) -> None:
        self._plan = plan
        self._guard = guard
        self._device = device
        self._own: dict[int, Guarded] = {}
        self._storages: list[torch.UntypedStorage] = []
        self._held: dict[int, torch.Tensor] = {}
        """What constants and kept buffers hold first, on the host."""
        for number, buffer in enumerate(plan.buffers):
            if buffer.given is not None:
                size = buffer.bytes + 2 * guard
                if buffer.given >= len(given):
                    raise ValueError(f"the plan wants storage {buffer.given} of {len(given)}")
                if given[buffer.given].nbytes() < size:
                    said = f"storage {buffer.given} has no room for {size} bytes, guards included"
                    raise ValueError(said)
                self._storages.append(given[buffer.given])
                continue
            self._own[number] = Guarded(buffer.bytes, device, guard)
            self._storages.append(self._own[number].whole.untyped_storage())
            if buffer.data:
                self._held[number] = torch.frombuffer(bytearray(buffer.data), dtype=torch.uint8)
        self._scratch = {step: Guarded(size, device, guard) for step, size in scratch.items()}
        self._random = torch.Generator(device).manual_seed(secrets.randbits(63))
        self.refresh(fresh=True)

    @property
    def addresses(self) -> list[int]:
        """Where the buffers' data begins."""
        return [storage.data_ptr() + self._guard for storage in self._storages]

    def scratch(self, step: int) -> int:
        """Where the global scratch of this step's launch begins; 0 where it has none."""
        return self._scratch[step].data.data_ptr() if step in self._scratch else 0

    def tensor(self, view: View) -> torch.Tensor:
        """The tensor on its buffer."""
        empty = torch.empty(0, dtype=getattr(torch, view.dtype), device=self._device)
        offset = self._guard // view.item + view.offset
        return empty.set_(self._storages[view.buffer], offset, view.size, view.stride)

    @torch.inference_mode()
    def refresh(self, fresh: bool, *, garbage: bool = False) -> None:
        """Make the memory what it is before a call: constants in place, what the call itself
        allocates poisoned; and, where `fresh`, what is kept between calls as it was first made,
        or garbage that nobody has seen before. `garbage` is that alone: what a kernel fills in its
        first call, it must leave as the next one needs it."""
        for memory in (*self._scratch.values(), *self._own.values()):
            memory.guard()
        for memory in self._scratch.values():
            memory.data.fill_(secrets.choice(_POISONS))
        for number, memory in self._own.items():
            buffer, held = self._plan.buffers[number], self._held.get(number)
            anew = fresh or (garbage and held is None and not buffer.fills)
            if buffer.role == "made":
                memory.data.fill_(secrets.choice(_POISONS))
            elif buffer.role == "constant" or anew:
                if held is not None:
                    memory.data.copy_(held)
                else:
                    memory.data.random_(0, 256, generator=self._random)
                for fill in buffer.fills:
                    self.tensor(fill.target).fill_(fill.value)

    def broken_guards(self) -> list[str]:
        """Names of memory that was written around, and of constants that were written to."""
        named = {
            **{f"buffer {n} ({self._plan.buffers[n].role})": m for n, m in self._own.items()},
            **{f"global scratch of step {n}": memory for n, memory in self._scratch.items()},
        }
        if not named or not self._guard:
            return []
        least = torch.stack([memory.least() for memory in named.values()]).tolist()
        broken = [name for name, byte in zip(named, least, strict=True) if byte != _GUARD]
        for number, held in self._held.items():
            constant = self._plan.buffers[number].role == "constant"
            if constant and not torch.equal(self._own[number].data.cpu(), held):
                broken.append(f"buffer {number} (constant), written to")
        return broken


class PlanProgram(PlanMemory):
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
        scratch = {
            number: prod((*step.grid, *binary.cluster)) * binary.scratch_bytes
            for number, step in enumerate(plan.steps)
            if isinstance(step, Launch) and (binary := functions[step.kernel].binary).scratch_bytes
        }
        super().__init__(plan, given, scratch, device, guard)
        self._functions = functions
        self._steps = [self._prepared(number, step) for number, step in enumerate(plan.steps)]
        self._computing = [
            run
            for run, step in zip(self._steps, plan.steps, strict=True)
            if isinstance(step, Operation) and step.name in COMPUTE
        ]
        self._results = [self.tensor(view) for view in plan.results]

    @property
    def computes(self) -> bool:
        """Whether torch computes a part of it."""
        return bool(self._computing)

    def enqueue(self) -> list[torch.Tensor]:
        """Give the call to the GPU, on the current stream. What it returns."""
        self._run(self._steps)
        return self._results

    def enqueue_computing(self) -> list[torch.Tensor]:
        """Only what torch computes in it."""
        self._run(self._computing)
        return []

    def _run(self, steps: Sequence[Callable[[int], object]]) -> None:
        stream = torch.cuda.current_stream().cuda_stream if self._plan.kernels else 0
        with torch.inference_mode():
            for run in steps:
                run(stream)

    def _prepared(self, number: int, step: Step) -> Callable[[int], object]:
        if isinstance(step, Launch):
            if 0 in step.grid:
                return lambda stream: None
            function, scratch = self._functions[step.kernel], self.scratch(number)
            triton, addresses = self._plan.triton, self.addresses
            packed = parameters(step, function.binary, triton, addresses, scratch)
            return PreparedLaunch(function, step.grid, packed).enqueue
        if isinstance(step, Operation):
            run = prepare(step, self.tensor)
            return lambda stream: run()
        target = self.tensor(step.target)
        if isinstance(step, Fill):
            value = step.value
            return lambda stream: target.fill_(value)
        source = self.tensor(step.source)
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
