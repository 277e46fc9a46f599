"""What `torch.compile` generated for a problem: the code, and how its kernels are launched."""

from __future__ import annotations

from beamsearch.records.record import Record


class LaunchConfig(Record):
    """What the compiler's own tuning chose for one kernel."""

    kwargs: dict[str, int]
    """Block sizes; empty where they stand in the kernel's source."""
    num_warps: int
    num_stages: int
    maxnreg: int | None = None


class TensorArgument(Record):
    """A tensor that the compiled call takes."""

    name: str
    """The name that a kernel is bound by."""
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str
    """Torch's name, such as `bfloat16`."""


class Captured(Record):
    """One compilation of a problem's reference."""

    way: str
    """Name of the options that it was compiled with (see `capture.WAYS`)."""
    torch: str
    code: str
    """The whole module that the compiler wrote."""
    arguments: list[TensorArgument]
    """In the order that the compiled call takes them."""
    kernels: dict[str, LaunchConfig]


class Compilation(Record):
    """What came of one way of compiling: the code, or why there is none."""

    way: str
    captured: Captured | None = None
    reason: str = ""
