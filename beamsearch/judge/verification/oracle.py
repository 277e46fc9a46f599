"""What the outputs should be: the reference, widened, on the very values the candidate gets."""

import copy
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.verification.tolerance import (
    TOLERANCE,
    Difference,
    Scale,
    compare,
    mean_and_spread,
    rms_error,
)
from beamsearch.problem.dispatch_modes import Tf32
from beamsearch.problem.instance import Instance
from beamsearch.problem.least_work import least_work
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.precision import products
from beamsearch.problem.problem import Problem
from kernel_profiling.gpus import UnknownGpu, find_gpu

SMALL_BYTES = 1 << 22
"""Problems of so few bytes always get an oracle in float64: it costs nothing."""
DOUBLE_S = 0.4
"""Seconds that an oracle may take in float64, at the GPU's peak. In float32 it errs as much as a
candidate does, just as PyTorch's own result, whose errors then seem to be none."""
DOUBLE_FLOPS = 2e11
"""So many on a GPU that is not known: what those with few units for float64 do in that time."""

SUM_SHARE = 2.0**-28
"""Of a float32 sum, for each of its terms: matrix units add eight products at a time and cut the
sum off at its last bit, so that one of positive terms is too small. On an H200 one of 1024 loses
4.0e-6 where each product is exact to 2^-21, as in `tf32x3`."""

Change = Callable[[int, torch.Tensor], torch.Tensor]
"""Other values of a widened tensor; the number tells tensors apart."""


@dataclass(frozen=True)
class Expected:
    """One output as it should be."""

    oracle: torch.Tensor
    """The reference's result in float32 (float64 for float64), computed in float64 where that fits
    and matters, on the very values the candidate gets. On `meta` while its set is not in memory."""
    dtype: torch.dtype
    scale: Scale
    may_alias: bool
    """Whether the reference itself returns memory of its inputs."""
    stride: tuple[int, ...] = ()
    """Of the reference's own output; empty where it is not known."""
    moved: torch.Tensor | None = None
    """How far each element moves under rounding; none where that was not measured."""

    def difference(self, result: torch.Tensor) -> Difference:
        """How far a result is from this output."""
        return compare(result, self.oracle, self.scale, self.moved)

    def without_oracle(self) -> "Expected":
        """The same with the oracle's shape alone."""
        return replace(self, oracle=self.oracle.to("meta"))


def oracle_dtype(problem: Problem, device: str) -> torch.dtype:
    """What the oracle is computed in.

    float64 for small problems, and for float32 ones where memory and work allow: there a sum of
    many terms errs by as much in the oracle as in the candidate. For half types float32 is exact
    enough by four digits.
    """
    if problem.dtype == "float64":
        return torch.float64
    work = least_work(problem)
    if work.least_bytes <= SMALL_BYTES:
        return torch.float64
    if problem.dtype != "float32" or device == "cpu" or work.flops > _double_flops(device):
        return torch.float32
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    # Twice the bytes an element, and what the reference holds between its steps.
    return torch.float64 if 8 * work.least_bytes < free else torch.float32


def _double_flops(device: str) -> float:
    """The most work done in float64 on this GPU."""
    try:
        part = find_gpu(torch.cuda.get_device_name(device))
    except UnknownGpu:
        return DOUBLE_FLOPS
    return max(DOUBLE_FLOPS, DOUBLE_S * part.tflops["float64"] * 1e12)


def lost_in_sums(problem: Problem) -> float:
    """Share of a value that float32 sums of its products may lose in matrix units; 0 in other
    dtypes, which are more than that apart."""
    if problem.dtype != "float32":
        return 0.0
    work = least_work(problem)
    elements = work.bytes_written / torch.float32.itemsize
    return SUM_SHARE * work.flops / 2 / max(1.0, elements)


def run_oracle(
    instance: Instance, inputs: tuple[Any, ...], wide: torch.dtype, change: Change | None = None
) -> list[torch.Tensor]:
    """The reference's outputs in `wide`; in float32 where the reference insists on less. No TF32.

    `change` makes other values of each widened floating-point input, parameter and buffer. Raises
    ProblemError where the reference fails, OutOfMemoryError as it is.
    """
    tensors = (*instance.model.parameters(), *instance.model.buffers(), *instance.inputs)
    double = any(isinstance(t, torch.Tensor) and t.dtype is torch.float64 for t in tensors)
    given = torch.float64 if double else torch.float32
    mode = torch.no_grad() if instance.gradients else torch.inference_mode()
    with mode, products("strict"):
        if wide is torch.float64 and not double:
            # A reference may name its dtypes, or be larger inside than outside.
            with suppress(ProblemError, torch.OutOfMemoryError):
                return _run_as(instance, inputs, wide, given, change)
            wide = given
        return _run_as(instance, inputs, wide, given, change)


def _run_as(
    instance: Instance,
    inputs: tuple[Any, ...],
    dtype: torch.dtype,
    given: torch.dtype,
    change: Change | None,
) -> list[torch.Tensor]:
    """Computed in `dtype`, handed over as the `given` one."""

    def widened(number: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return change(number, value.to(dtype)) if change else value.to(dtype)

    model = copy.deepcopy(instance.model).to(dtype)
    if change:
        state = [*model.parameters(), *model.buffers()]
        for number, tensor in enumerate(state, start=len(inputs)):
            tensor.data = widened(number, tensor.data)
    values = tuple(widened(number, value) for number, value in enumerate(inputs))
    outputs = run_reference(replace(instance, model=model, inputs=values))
    return [(out.to(given) if out.is_floating_point() else out).contiguous() for out in outputs]


def find_updates(instance: Instance) -> tuple[str, ...]:
    """Buffers of the model that `forward` changes, as batch normalisation does in training."""
    before = {name: buffer.clone() for name, buffer in instance.model.named_buffers()}
    if not before or not instance.model.training:
        return ()
    after = run_reference(replace(instance, updates=tuple(before)))
    pairs = zip(before.items(), after[-len(before) :], strict=True)
    return tuple(name for (name, old), new in pairs if not torch.equal(old, new))


def run_reference(instance: Instance) -> list[torch.Tensor]:
    """The reference's outputs. Raises ProblemError where it fails, OutOfMemoryError as it is."""
    try:
        return outputs_of(instance.reference())
    except (ProblemError, torch.OutOfMemoryError):
        raise
    except Exception as error:
        raise ProblemError(f"the reference fails: {type(error).__name__}: {error}") from error


def expected_of(
    instance: Instance,
    oracles: Sequence[torch.Tensor],
    others: Sequence[torch.Tensor],
    sums: float = 0.0,
) -> tuple[list[Expected], list[torch.Tensor]]:
    """What each output is judged by, and PyTorch's own outputs in the problem's dtype, by the rule
    of precision. Where that allows TF32 and an operation would use it on a GPU, the noise is that
    of operands cut to TF32 too. `sums` as in `Scale`."""
    with products(instance.precision):
        with Tf32() as by_default:
            own = run_reference(instance)
        in_tf32: Sequence[torch.Tensor | None] = [None] * len(own)
        if instance.precision != "strict" and by_default.seen:
            with Tf32(cut=True):
                in_tf32 = run_reference(instance)
    given = [value for value in instance.inputs if isinstance(value, torch.Tensor)]
    pointers = {tensor.untyped_storage().data_ptr() for tensor in given}
    expected = [
        Expected(
            oracle=oracle,
            dtype=value.dtype,
            scale=replace(_scale(value, oracle, other, rough), sums=sums),
            may_alias=value.untyped_storage().data_ptr() in pointers,
            stride=value.stride(),
        )
        for value, oracle, other, rough in zip(own, oracles, others, in_tf32, strict=True)
    ]
    return expected, own


def _scale(
    value: torch.Tensor, oracle: torch.Tensor, other: torch.Tensor, in_tf32: torch.Tensor | None
) -> Scale:
    _, spread = mean_and_spread(oracle)
    if oracle.numel() == 1:  # one number has no spread but what other inputs make of it
        spread = float((oracle - other).abs())
    if not value.is_floating_point():
        return Scale(spread=spread, noise=0.0, tolerance=0.0)
    noise = rms_error(value, oracle)
    if in_tf32 is not None:
        noise = max(noise, rms_error(in_tf32, oracle))
    tolerance = TOLERANCE[str(value.dtype).removeprefix("torch.")]
    return Scale(spread, noise, tolerance, tf32=in_tf32 is not None)
