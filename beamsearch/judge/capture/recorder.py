"""What host code does with stand-in tensors, noted step by step."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from beamsearch.judge.capture import shadows
from beamsearch.judge.capture.shadows import FILLS, FULL, OVERWRITES
from beamsearch.judge.capture.standin import DEVICE, Memory, StandIn, as_meta, stand_ins
from beamsearch.judge.operations import COMPUTE, MOVES
from beamsearch.problem.dispatch_modes import QuickMode
from beamsearch.records.plan import Role

ALIGNMENT = 256
"""What divides every address, as with PyTorch's own allocator on a GPU (which gives 512)."""
EMPTY = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided"}
COPIES = {"clone", "_to_copy", "contiguous"}
HOST_READS = {"_local_scalar_dense", "is_nonzero", "equal", "nonzero", "masked_select", "unique"}
MAKES_TENSORS = (torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor)
"""Functions that make a tensor of values on the host, wherever it goes."""
_NOT_TOLD = {"device", "layout", "pin_memory", "memory_format", "non_blocking"}


class Refused(Exception):
    """The kernel does what no plan can express."""


@dataclass
class Noted:
    """One step as it was met: its kind, and what it was given, tensors as they are. What a launch
    is given is flattened, constants left out; `named` are fields of the plan's `Launch`, the kernel
    itself among them."""

    kind: str
    name: str
    call: int
    arguments: list[Any]
    named: dict[str, Any] = field(default_factory=dict)
    targets: list[StandIn] = field(default_factory=list)
    line: int | None = None

    def memories(self) -> list[Memory]:
        """All memory that the step touches."""
        return [t.memory for t in stand_ins([self.arguments, self.named, self.targets])]


class Recorder(QuickMode):
    """Notes every operation on stand-ins, and carries none out."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.memories: dict[int, Memory] = {}
        """All allocations, by their storage."""
        self._next = 0x7F0000000000
        self.chosen: str | None = None
        """By the autotuner whose launch is at hand: its configuration in words."""
        self.restart("")

    def restart(self, source_file: str) -> None:
        """Forget what was noted; another kernel file comes."""
        self.source_file = source_file
        self.call = 0
        self.steps: list[Noted] = []
        """Of all calls, in order."""
        self._begun = 0

    def begin(self) -> None:
        """Begin a new call."""
        self.call += 1
        self._begun = len(self.steps)

    @property
    def own(self) -> list[Noted]:
        """Steps of the call at hand."""
        return self.steps[self._begun :]

    def wrap(self, meta: torch.Tensor, role: Role = "made", given: int | None = None) -> StandIn:
        """A stand-in for a tensor on `meta`: on the memory that it is a view of, or on new."""
        storage = meta.untyped_storage()
        memory = self.memories.get(storage._cdata)
        if memory is None:
            size = storage.nbytes()
            # An address of its own, that nobody can tell ahead.
            address = self._next + ALIGNMENT * (1 + secrets.randbelow(4095))
            self._next = -(-(address + size) // ALIGNMENT) * ALIGNMENT
            memory = Memory(size, address, role, self.call, given, storage=storage)
            self.memories[storage._cdata] = memory
        return StandIn(meta, memory)

    def holds(self, address: int) -> bool:
        """Whether an address lies in any memory."""
        memories = self.memories.values()
        return any(0 <= address - m.address < max(1, m.size) for m in memories)

    def note(self, kind: str, name: str, arguments: Sequence[Any], **rest: Any) -> None:
        """Note a step."""
        line = self._line()
        self.steps.append(Noted(kind, name, self.call, list(arguments), line=line, **rest))

    def refuse(self, what: str) -> Refused:
        """What to raise for something a plan cannot express."""
        line = self._line()
        return Refused(f"{what} (line {line})" if line else what)

    def _line(self) -> int | None:
        """Of the kernel's file, the innermost line that is being run."""
        frame = sys._getframe(1)
        while frame is not None:
            if frame.f_code.co_filename == self.source_file:
                return frame.f_lineno
            frame = frame.f_back  # type: ignore[assignment]
        return None

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        asked = kwargs.get("device")
        to_gpu = asked is not None and torch.device(asked).type == "cuda"
        if not to_gpu and next(stand_ins([args, kwargs]), None) is None:
            return func(*args, **kwargs)  # tensors of the host alone
        name = func.overloadpacket.__name__
        if asked is not None and not to_gpu:
            raise self.refuse(f"copies a tensor to the {torch.device(asked).type}")
        if name in HOST_READS:
            raise self.refuse(f"reads a tensor's values on the host ({name})")
        if kwargs.get("out") is not None:
            raise self.refuse(f"writes through `out` of torch's {name}")
        source = args[0] if args else None
        if name == "lift_fresh":
            return source
        if name in COPIES and isinstance(source, torch.Tensor) and not isinstance(source, StandIn):
            return self.constant(func(*args, **{**kwargs, "device": torch.device("cpu")}))
        if name in OVERWRITES and not isinstance(source, StandIn):
            raise self.refuse("copies a tensor to the cpu")
        if name == "copy_" and not isinstance(args[1], StandIn):
            args = [source, self.constant(args[1])]
        return self._operate(func, name, args, kwargs)

    def _operate(self, func: Any, name: str, args: Any, kwargs: Any) -> Any:
        """Note an operation, unless all that it gives are views of memory that is known."""
        given = {key: value for key, value in kwargs.items() if key != "pin_memory"}
        try:
            result = func(*as_meta(args), **as_meta(given))
        except NotImplementedError as error:
            reason = f"torch's {name} needs values, or is no operation of a plan"
            raise self.refuse(reason) from error
        several = isinstance(result, tuple | list)
        results = list(result) if several else [result]
        if not all(isinstance(item, torch.Tensor) for item in results):
            return result  # a shape, a number: nothing of the GPU's
        known = [item.untyped_storage()._cdata in self.memories for item in results]
        made = [self.wrap(item) for item in results]
        if name not in EMPTY and (not all(known) or func._schema.is_mutable):
            self._note_operation(func, name, args, kwargs, made)
            shadows.follow(func, args, kwargs, made)
        if func._schema.is_mutable and args and isinstance(args[0], StandIn):
            return args[0]
        return type(result)(made) if several else made[0]

    def _note_operation(
        self, func: Any, name: str, args: Any, kwargs: Any, made: list[StandIn]
    ) -> None:
        if name in FILLS or name in FULL:
            value = FILLS[name] if name in FILLS else args[FULL[name]]
            self.note("fill", name, [_plain(value)], targets=made)
        elif name in COPIES or name == "copy_":
            self.note("copy", name, [args[1] if name == "copy_" else args[0]], targets=made)
        elif str(func) in MOVES | COMPUTE:
            named = {k: _plain(v) for k, v in kwargs.items() if k not in _NOT_TOLD}
            self.note("operation", str(func), list(map(_plain, args)), named=named, targets=made)
        else:
            raise self.refuse(f"torch's {name} is library compute; do this work in a Triton kernel")

    def constant(self, value: torch.Tensor) -> StandIn:
        """A tensor of the host on the GPU: its values are known, whatever the inputs are."""
        value = value.detach()
        meta = torch.empty_strided(value.size(), value.stride(), dtype=value.dtype, device="meta")
        made = self.wrap(meta, role="constant")
        flat = torch.empty(made.memory.size, dtype=torch.uint8)
        placed = flat.view(value.dtype) if flat.numel() else value.reshape(-1)
        torch.as_strided(placed, value.size(), value.stride()).copy_(value)
        made.memory.data = bytes(flat.numpy())
        made.memory.shadow = flat
        return made


class HostTensors(TorchFunctionMode):
    """Tensors of values written in the kernel's source are made on the host, then copied."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func not in MAKES_TENSORS:
            return func(*args, **kwargs)
        if func is torch.Tensor.new_tensor:
            like, *args = args
            kwargs = {"dtype": like.dtype, "device": like.device, **kwargs}
            func = torch.tensor
        device = torch.device(kwargs.get("device") or "cpu")
        if device.type != "cuda" or isinstance(args[0], StandIn):
            return func(*args, **kwargs)
        return func(*args, **{**kwargs, "device": "cpu"}).to(DEVICE)


def _plain(value: Any) -> Any:
    """A number held by a tensor of the host, as the number; anything else as it is."""
    if isinstance(value, torch.Tensor) and not isinstance(value, StandIn) and value.dim() == 0:
        return value.item()
    return value
