"""What the outputs should be: the reference, widened, on the very values the candidate gets."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from beamsearch.errors import ProblemError
from beamsearch.judge.verification.tolerance import TOLERANCE, Scale, mean_and_spread, rms_error
from beamsearch.problem.instance import Instance
from beamsearch.problem.least_work import least_work
from beamsearch.problem.precision import products
from beamsearch.problem.problem import Problem

if TYPE_CHECKING:
    import torch

SMALL_BYTES = 1 << 22
"""Problems of so few bytes always get an oracle in float64: it costs nothing."""
DOUBLE_FLOPS = 2e11
"""The most work done in float64: half a second on a GPU with few units for it."""

Change = Callable[[int, "torch.Tensor"], "torch.Tensor"]
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


def oracle_dtype(problem: Problem, device: str) -> torch.dtype:
    """What the oracle is computed in.

    float64 for small problems, and for float32 ones where memory and work allow: there a sum of
    many terms errs by as much in the oracle as in the candidate. For half types float32 is exact
    enough by four digits.
    """
    import torch

    if problem.dtype == "float64":
        return torch.float64
    work = least_work(problem)
    if work.least_bytes <= SMALL_BYTES:
        return torch.float64
    if problem.dtype != "float32" or work.flops > DOUBLE_FLOPS or device == "cpu":
        return torch.float32
    free, _ = torch.cuda.mem_get_info(torch.device(device))
    # Twice the bytes an element, and what the reference holds between its steps.
    return torch.float64 if 8 * work.least_bytes < free else torch.float32


def run_oracle(
    instance: Instance, inputs: tuple[Any, ...], wide: torch.dtype, change: Change | None = None
) -> list[torch.Tensor]:
    """The reference's outputs in `wide`; in float32 where the reference insists on less. No TF32.

    `change` makes other values of each widened floating-point input, parameter and buffer. Raises
    ProblemError where the reference fails, OutOfMemoryError as it is.
    """
    import torch

    with torch.inference_mode(), products("strict"):
        if wide is torch.float64 and _dtype_of(instance) is not torch.float64:
            try:
                return _run_as(instance, inputs, torch.float64, change)
            except (ProblemError, torch.OutOfMemoryError):
                pass  # a reference that names its dtypes, or is larger inside than outside
        narrow = wide if wide is _dtype_of(instance) else torch.float32
        return _run_as(instance, inputs, narrow, change)


def _dtype_of(instance: Instance) -> torch.dtype | None:
    """float64 where a parameter or an input is, else none."""
    import torch

    tensors = (*instance.model.parameters(), *instance.model.buffers(), *instance.inputs)
    double = any(isinstance(t, torch.Tensor) and t.dtype is torch.float64 for t in tensors)
    return torch.float64 if double else None


def _run_as(
    instance: Instance, inputs: tuple[Any, ...], dtype: torch.dtype, change: Change | None = None
) -> list[torch.Tensor]:
    import torch

    def widened(number: int, value: Any) -> Any:
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        return change(number, value.to(dtype)) if change else value.to(dtype)

    model = copy.deepcopy(instance.model).to(dtype)
    if change:
        state = [*model.parameters(), *model.buffers()]
        for number, tensor in enumerate(state, start=len(inputs)):
            tensor.data = widened(number, tensor.data)
    values = [widened(number, value) for number, value in enumerate(inputs)]
    widest = replace(instance, model=model, inputs=tuple(values))
    outputs = as_outputs(run_reference(widest.reference))
    kept = torch.float64 if _dtype_of(instance) is torch.float64 else torch.float32
    return [
        output.to(kept).contiguous() if output.is_floating_point() else output.contiguous()
        for output in outputs
    ]


def find_updates(instance: Instance) -> tuple[str, ...]:
    """Buffers of the model that `forward` changes, as batch normalisation does in training."""
    import torch

    before = {name: buffer.clone() for name, buffer in instance.model.named_buffers()}
    if not before or not instance.model.training:
        return ()
    after = as_outputs(run_reference(replace(instance, updates=tuple(before)).reference))
    pairs = zip(before.items(), after[-len(before) :], strict=True)
    return tuple(name for (name, old), new in pairs if not torch.equal(old, new))


def run_reference(call: Callable[[], Any]) -> Any:
    """The reference's result. Raises ProblemError where it fails, OutOfMemoryError as it is."""
    import torch

    try:
        return call()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise ProblemError(f"the reference fails: {type(error).__name__}: {error}") from error


def as_outputs(result: Any) -> list[torch.Tensor]:
    """The tensors of a result: one, or several in a tuple or list. Raises ProblemError."""
    import torch

    values = list(result) if isinstance(result, tuple | list) else [result]
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
        raise ProblemError("the reference must return a tensor, or a tuple of tensors")
    return values


def expected_of(
    instance: Instance, oracles: Sequence[torch.Tensor], others: Sequence[torch.Tensor]
) -> tuple[list[Expected], list[torch.Tensor]]:
    """What each output is judged by, and PyTorch's own outputs in the problem's dtype."""
    import torch

    own, in_tf32 = _own_outputs(instance)
    pointers = {
        t.untyped_storage().data_ptr() for t in instance.inputs if isinstance(t, torch.Tensor)
    }
    expected = [
        Expected(
            oracle=oracle,
            dtype=value.dtype,
            scale=_scale(value, oracle, other, rough),
            may_alias=value.untyped_storage().data_ptr() in pointers,
            stride=value.stride(),
        )
        for value, oracle, other, rough in zip(own, oracles, others, in_tf32, strict=True)
    ]
    return expected, own


def _own_outputs(
    instance: Instance,
) -> tuple[list[torch.Tensor], Sequence[torch.Tensor | None]]:
    """PyTorch's own outputs by the rule of precision; and, where that allows TF32 and an operation
    would use it on a GPU, what these are with operands cut to TF32."""
    from beamsearch.problem.dispatch_modes import Tf32

    with products(instance.precision):
        with Tf32() as by_default:
            own = as_outputs(run_reference(instance.reference))
        if instance.precision == "strict" or not by_default.seen:
            return own, [None] * len(own)
        with Tf32(cut=True):
            return own, as_outputs(run_reference(instance.reference))


def _scale(
    value: torch.Tensor, oracle: torch.Tensor, other: torch.Tensor, in_tf32: torch.Tensor | None
) -> Scale:
    name = str(value.dtype).removeprefix("torch.")
    _, spread = mean_and_spread(oracle)
    if oracle.numel() == 1:  # one number has no spread but what other inputs make of it
        spread = float((oracle - other).abs())
    if not value.is_floating_point():
        return Scale(spread=spread, noise=0.0, tolerance=0.0)
    noise = rms_error(value, oracle)
    if in_tf32 is not None:
        noise = max(noise, rms_error(in_tf32, oracle))
    return Scale(spread, noise, TOLERANCE[name], tf32=in_tf32 is not None)
