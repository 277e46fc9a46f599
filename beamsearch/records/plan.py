"""What one call of a kernel does to the GPU, as data: it can be read, checked, compiled and run
without the Python that it was captured from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import Base64Bytes, ConfigDict, Field, model_validator

from beamsearch.records.record import Record

MOST_STEPS = 4096
"""Steps of one call, and kernels and buffers of them; an honest kernel has a handful."""
MOST_CONSTANT_BYTES = 16 << 20
"""Constants made on the host, from shapes and hyperparameters alone, in all."""
MOST_GRID = (2**31 - 1, 65535, 65535)
"""CUDA's limits on a grid."""
DTYPE_BYTES = {
    **dict.fromkeys(("bool", "uint8", "int8", "float8_e4m3fn", "float8_e5m2"), 1),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float64", "int64", "uint64"), 8),
}
"""Bytes of an element, by torch's name of the type."""

Role = Literal["given", "made", "kept", "constant"]
Container = Literal["tensor", "tuple", "list"]
Scalar = bool | int | float


class View(Record):
    """A tensor that lies on a buffer."""

    buffer: int = Field(ge=0)
    dtype: str
    offset: int = Field(ge=0)
    """Elements from the buffer's beginning."""
    size: tuple[Annotated[int, Field(ge=0)], ...]
    stride: tuple[Annotated[int, Field(ge=0)], ...]
    """In elements, as `size` one a dimension."""

    @property
    def end(self) -> int:
        """The byte behind the last one that is touched, from the buffer's beginning."""
        if 0 in self.size:
            return self.offset * self.item
        last = sum((n - 1) * step for n, step in zip(self.size, self.stride, strict=True))
        return (self.offset + last + 1) * self.item

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return DTYPE_BYTES[self.dtype]

    @model_validator(mode="after")
    def _is_a_tensor(self) -> View:
        if self.dtype not in DTYPE_BYTES or len(self.size) != len(self.stride):
            raise ValueError(f"no tensor: {self.dtype}, {self.size} by {self.stride}")
        return self


class Fill(Record):
    """Set every element to one value."""

    step: Literal["fill"] = "fill"
    target: View
    value: Scalar


class Copy(Record):
    """Copy, with a cast where the dtypes differ; `source` may have to be broadcast."""

    step: Literal["copy"] = "copy"
    target: View
    source: View


class DType(Record):
    """An argument that is a dtype."""

    dtype: str


Single = View | DType | bool | int | float | str | None
Operand = Single | list[Single]


class Operation(Record):
    """A torch operation on a short list, whose results are written to `targets`."""

    step: Literal["operation"] = "operation"
    name: str
    """Overload, such as `aten.sum.dim_IntList`."""
    arguments: list[Operand]
    named: dict[str, Operand] = {}
    targets: list[View]
    line: int | None = None
    """Of the kernel's source."""


class Pointer(Record):
    """An address inside a buffer."""

    buffer: int = Field(ge=0)
    offset: int = Field(ge=0)
    """In bytes."""


class Number(Record):
    """A number with Triton's name of its type, such as `i32` or `fp32`."""

    type: str
    value: Scalar


class Descriptor(Record):
    """A tensor descriptor made on the host (`TensorDescriptor`)."""

    base: Pointer
    dtype: str
    """Torch's name of the element type."""
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    """In elements."""
    block_shape: tuple[int, ...]
    padding: Literal["zero", "nan"] = "zero"
    round_f32_to_tf32: bool = False
    type: str
    """As Triton writes it in a signature, such as `tensordesc<bf16[64, 64]>`."""


class Launch(Record):
    """One launch of a Triton kernel."""

    step: Literal["launch"] = "launch"
    kernel: int = Field(ge=0)
    grid: tuple[Annotated[int, Field(ge=0)], ...] = Field(min_length=3, max_length=3)
    arguments: list[Pointer | Number | Descriptor]
    """In the order of the compiled function's parameters, tuples flattened, constants left out."""
    named: dict[str, str] = {}
    """Parameter -> its value in words, constants included: for people, and for the profile."""
    config: str | None = None
    """What an autotuner chose."""
    line: int | None = None
    """Of the kernel's source, where it is launched."""


Step = Annotated[Fill | Copy | Operation | Launch, Field(discriminator="step")]


class Kernel(Record):
    """A Triton function as the compiler gets it."""

    name: str
    ttir: str
    """Triton IR after its own passes, with the source's locations."""
    options: dict[str, Any]
    """Of the backend: warps, stages, clusters, precision of products, …"""
    signature: list[str]
    """Types of the parameters, constants left out, tuples flattened."""
    source_file: str = ""


class Buffer(Record):
    """Memory. Each lies apart from all others, at an address that 256 divides."""

    role: Role
    """`given`: holds an argument of the call. `made`: allocated in the call. `kept`: made in an
    earlier call. `constant`: made on the host."""
    bytes: int = Field(ge=0)
    given: Annotated[int, Field(ge=0)] | None = None
    """Number of the argument's storage, in the order of binding."""
    data: Base64Bytes | None = None
    """What a constant holds, or a kept buffer held first."""
    fills: list[Fill] = []
    """How a kept buffer was first filled; garbage where there is nothing."""


class Plan(Record):
    """One call. Everything in it is checked against bounds here, whoever wrote it."""

    capability: int
    """Of the GPU it was captured for, such as 90."""
    triton: str
    """Version of Triton that made the IR."""
    kernels: list[Kernel] = Field(max_length=MOST_STEPS)
    buffers: list[Buffer] = Field(max_length=MOST_STEPS)
    steps: list[Step] = Field(max_length=MOST_STEPS)
    results: list[View]
    container: Container = "tensor"
    """What `kernel_function` returned them in."""

    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="constants")

    @property
    def launches(self) -> list[Launch]:
        """Those among the steps, in order."""
        return [step for step in self.steps if isinstance(step, Launch)]

    @property
    def touched(self) -> frozenset[int]:
        """Numbers of the given storages that it reads or writes."""
        return frozenset(buffer.given for buffer in self.buffers if buffer.given is not None)

    @model_validator(mode="after")
    def _stays_inside(self) -> Plan:
        constants = sum(len(buffer.data or b"") for buffer in self.buffers)
        if constants > MOST_CONSTANT_BYTES:
            raise ValueError(f"{constants} bytes of constants; {MOST_CONSTANT_BYTES} are allowed")
        for number, buffer in enumerate(self.buffers):
            self._check_buffer(number, buffer)
        for view in self.results:
            self._check_view(view)
            if self.buffers[view.buffer].role in ("kept", "constant"):
                raise ValueError("a result lies in memory that is kept between calls")
        for step in self.steps:
            self._check_step(step)
        return self

    def _check_buffer(self, number: int, buffer: Buffer) -> None:
        if (buffer.role == "given") != (buffer.given is not None):
            raise ValueError(f"buffer {number} is {buffer.role} and names {buffer.given}")
        if buffer.data is not None and len(buffer.data) != buffer.bytes:
            raise ValueError(f"buffer {number} has other bytes than its data")
        if buffer.role == "constant" and buffer.data is None:
            raise ValueError(f"buffer {number} is a constant without data")
        for fill in buffer.fills:
            if buffer.role != "kept" or fill.target.buffer != number:
                raise ValueError(f"buffer {number} fills what is not its own")
            self._check_view(fill.target)

    def _check_step(self, step: Fill | Copy | Operation | Launch) -> None:
        if isinstance(step, Launch):
            self._check_launch(step)
            return
        if isinstance(step, Operation):
            written, read = step.targets, _views([*step.arguments, *step.named.values()])
        else:
            written, read = [step.target], [step.source] if isinstance(step, Copy) else []
        for view in (*written, *read):
            self._check_view(view)
        for view in written:
            if self.buffers[view.buffer].role == "constant":
                raise ValueError("a constant is written to")

    def _check_launch(self, step: Launch) -> None:
        if step.kernel >= len(self.kernels):
            raise ValueError(f"no kernel {step.kernel}")
        if any(asked > most for asked, most in zip(step.grid, MOST_GRID, strict=True)):
            raise ValueError(f"the grid {step.grid} exceeds {MOST_GRID}")
        signature = self.kernels[step.kernel].signature
        if len(signature) != len(step.arguments):
            raise ValueError(f"{len(step.arguments)} arguments for {len(signature)} parameters")
        for kind, value in zip(signature, step.arguments, strict=True):
            if isinstance(value, Number):
                if value.type != kind or kind.startswith(("*", "tensordesc")):
                    raise ValueError(f"a number {value.type} for a parameter {kind}")
                continue
            place = value if isinstance(value, Pointer) else value.base
            wanted = "*" if isinstance(value, Pointer) else "tensordesc"
            if not kind.startswith(wanted):
                raise ValueError(f"an address for a parameter {kind}")
            if place.buffer >= len(self.buffers):
                raise ValueError(f"no buffer {place.buffer}")
            if place.offset > self.buffers[place.buffer].bytes:
                raise ValueError(f"an address outside buffer {place.buffer}")

    def _check_view(self, view: View) -> None:
        if view.buffer >= len(self.buffers):
            raise ValueError(f"no buffer {view.buffer}")
        if view.end > self.buffers[view.buffer].bytes:
            raise ValueError(f"a view of {view.size} reaches outside buffer {view.buffer}")


class Binary(Record):
    """Machine code of one of a plan's kernels, compiled by the judge."""

    name: str
    """The entry point."""
    cubin: Base64Bytes
    threads: int
    """A block's, those that warp specialisation adds among them: what a launch asks for."""
    shared_bytes: int
    cluster: tuple[int, int, int] = (1, 1, 1)
    cooperative: bool = False
    """Launched with `launch_cooperative_grid`."""
    dependent: bool = False
    """Launched with programmatic stream serialisation (`launch_pdl`)."""
    scratch_bytes: int = 0
    """Global scratch of a block, for descriptors made on the GPU."""
    scratch_align: int = 1
    profile_bytes: int = 0
    """Scratch of a block for instrumentation; 0 for everything that is allowed here."""
    descriptors: list[dict[str, Any]] | None = None
    """Triton's `tensordesc_meta`, one entry a descriptor; none where they are taken apart."""
    metadata: dict[str, Any] = {}
    """What else Triton's own launcher wants to know."""


def _views(operands: Sequence[Operand]) -> list[View]:
    found: list[View] = []
    for operand in operands:
        if isinstance(operand, View):
            found.append(operand)
        elif isinstance(operand, list):
            found += _views(operand)
    return found
