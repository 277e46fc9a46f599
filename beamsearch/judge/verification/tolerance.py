"""Whether an output is the one the problem asks for, element by element.

Everything is measured against an oracle in float32. An element may be off by the documented
tolerance (rtol = atol = 1e-3 in float32, 1e-2 in half types), but by no more than a share of the
output's own spread, so that neither a huge mean nor a tiny output empties the test; one rounding of
the output's own dtype (four in float32) is always allowed, and so is what PyTorch's own result is
off by. Where that is known, so is what an element moves by when inputs are rounded otherwise: see
`negative_controls`.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

TOLERANCE = {"float16": 1e-2, "bfloat16": 1e-2, "float32": 1e-3, "float64": 1e-3}
SPREAD_SHARE = 5
"""An element is never off by more than five tolerances of the spread: 5% in half types. A constant
output is off by a whole spread, a sum that lost one of 27 equal terms by a fifth."""
ABSOLUTE_SHARE = 0.1
"""The absolute tolerance grows with outputs whose spread is above ten: a float32 sum of a million
standard normal terms, spread 1000, errs by 1e-3 near zero, and rightly so."""
NOISE_SHARE = 3
"""Times PyTorch's own rms error that an element may be off: three standard deviations."""
TF32_NOISE_SHARE = 8
"""The same in TF32, where that error is more than the tolerance: of 1e9 normal errors none is six
standard deviations, and inputs are not normal. The rms error decides (`lower_precision`)."""
MOVED_SHARE = {False: 2, True: 5}
"""Times the most an element moved under the roundings that were tried; and where products are in
TF32. Sixteen times what float32 loses was tried, but just what TF32 does: the most of two to
sixteen is one to two standard deviations, and six are wanted at least, as for `TF32_NOISE_SHARE`.
"""
ROUNDINGS = {4: 4, 8: 4}
"""Roundings of an output that are always allowed, by the bytes of an element: a result in float32
was computed in float32, step by step; one in a half type is rounded once, at the end."""
PIECE = 1 << 25
"""Elements compared in one go, to bound what comparing needs beside the data."""
PRECISION_SHARE = 2.0**-14
"""Rms error, as a share of the output's spread, that float32 arithmetic stays well below: sums of
thousands of terms in any order err by 1e-6. Operands rounded to TF32 or float16 (10 bits) give 3e-4
and more, to bfloat16 2e-3. Winograd's transforms for 3 x 3 windows stay below 3e-5."""
PRECISION_NOISE = {False: 8, True: 2}
"""Times PyTorch's own rms error, for outputs so small beside their terms that float32 shows; and
where its own products are in TF32: the noise is that of operands cut to TF32, at least. Of standard
normal ones, rounded to TF32 give 0.4 times that, rounded to bfloat16 3 times."""
ADVICE = {
    False: "keep values in float32, and give tl.dot input_precision='ieee' or 'tf32x3' (its "
    "default is TF32)",
    True: "the reference's convolutions are in TF32, and products may be (tl.dot's default), but "
    "keep operands and sums in float32",
}


@dataclass(frozen=True)
class Scale:
    """What an output's errors are measured by."""

    spread: float
    """Standard deviation of the oracle's elements."""
    noise: float
    """Rms error of PyTorch's own result in the problem's dtype."""
    tolerance: float
    """Of the dtype; 0 for integers, which must be equal."""
    tf32: bool = False
    """Whether PyTorch's own products are in TF32, and a kernel's may be. The noise is then that of
    operands cut to TF32, at least."""

    sums: float = 0.0
    """Share of a value that is lost in adding its products up in matrix units."""

    @property
    def element_noise(self) -> float:
        """What an element may be off because PyTorch's own are."""
        return (TF32_NOISE_SHARE if self.tf32 else NOISE_SHARE) * self.noise

    def rounding(self, dtype: torch.dtype) -> float:
        """Share of its size that any element of this dtype may be off: roundings of half the
        distance between neighbours each, or what sums lose where that is more."""
        roundings = ROUNDINGS.get(dtype.itemsize, 1) * torch.finfo(dtype).eps / 2
        return max(self.sums, roundings)


@dataclass(frozen=True)
class Difference:
    """How far an output is from the oracle."""

    elements: int
    relative_rms: float
    """Rms error over the spread, less what rounding explains where that is known."""
    wrong: int = 0
    """Elements outside their tolerance, unwritten and non-finite ones included."""
    not_finite: int = 0
    """Elements that are NaN or infinite where the oracle is not, or the other way round."""
    worst: float = 0.0
    """Absolute error of the finite element that is farthest outside what it is allowed; 0 where
    nothing needed a closer look."""
    worst_index: int = 0
    """Where it is, in the flattened output."""
    drifted: bool = False
    """Whether the rms error alone says that this is another result."""
    excused: int = 0
    """Elements outside the tolerance by no more than rounding moves them."""
    unsure: bool = False
    """Whether there was no memory to see how far rounding moves them."""

    @property
    def passed(self) -> bool:
        """Whether the output is right."""
        return self.wrong == 0 and not self.drifted

    def explain(self, result: torch.Tensor, oracle: torch.Tensor) -> str:
        """One line: how many, how far, where."""
        where = [int(i) for i in torch.unravel_index(torch.tensor(self.worst_index), oracle.shape)]
        got = float(result.flatten()[self.worst_index])
        want = float(oracle.flatten()[self.worst_index])
        share = 100 * self.wrong / self.elements
        text = f"{self.wrong} of {self.elements} elements wrong ({share:.3g}%)"
        if self.not_finite:
            text += f", {self.not_finite} of them NaN, infinite or never written"
            if self.not_finite == self.wrong:
                text += f" (one at {where})"
        if self.not_finite < self.wrong or self.drifted:
            text += f"; worst error {self.worst:.4g} at {where}: {got:.6g} instead of {want:.6g}"
        text += f"; rms error {100 * self.relative_rms:.3g}% of the output's spread"
        if self.unsure:
            text += " (too little GPU memory to see how far rounding alone moves the output)"
        return text


def mean_and_spread(oracle: torch.Tensor) -> tuple[float, float]:
    """Mean and standard deviation of the finite elements, over pieces in float64."""
    count, total, squares = 0, 0.0, 0.0
    for (part,) in pieces(oracle):
        finite = torch.isfinite(part)
        values = torch.where(finite, part, 0).double()
        count += int(finite.sum())
        total += float(values.sum())
        squares += float(values.square().sum())
    mean = total / max(1, count)
    return mean, max(0.0, squares / max(1, count) - mean**2) ** 0.5


def compare(
    result: torch.Tensor, oracle: torch.Tensor, scale: Scale, moved: torch.Tensor | None = None
) -> Difference:
    """Compare an output with the oracle of the same shape.

    `moved`: how far each element moves under rounding; none where that is not known.
    """
    rms = _rms_if_plainly_right(result, oracle, scale)
    if rms is None:
        return _examine(result, oracle, scale, moved)
    return Difference(oracle.numel(), rms / scale.spread if scale.spread else 0.0)


def rms_error(result: torch.Tensor, oracle: torch.Tensor) -> float:
    """Root mean square of the errors that are finite."""
    squares = 0.0
    for got, want in pieces(result, oracle):
        errors_here = torch.nan_to_num(got.to(want.dtype) - want, 0.0, 0.0, 0.0)
        squares += float(errors_here.double().square().sum())
    return math.sqrt(squares / max(1, oracle.numel()))


def pieces(*tensors: torch.Tensor | None, size: int = PIECE) -> Iterator[tuple[Any, ...]]:
    """The flattened tensors, all alike in size, piece by piece; none for one that is not there."""
    parts = [
        itertools.repeat(None) if tensor is None else torch.split(_flat(tensor), size)
        for tensor in tensors
    ]
    return zip(*parts, strict=False)  # what is not there has no end


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """One dimension; an expanded number stays one number."""
    return tensor.flatten() if any(tensor.stride()) else tensor.as_strided((tensor.numel(),), (0,))


def _rms_if_plainly_right(result: torch.Tensor, oracle: torch.Tensor, scale: Scale) -> float | None:
    """The rms error where all elements are well within bounds; none where one may not be.

    Six passes where a whole examination takes forty: nearly every correct output ends here. Not a
    number and infinity fail each comparison and so lead to the examination.
    """
    if not result.is_floating_point() or not oracle.numel():
        return None
    slope = scale.rounding(result.dtype)
    allowed = scale.tolerance * max(1.0, ABSOLUTE_SHARE * scale.spread)
    allowed = min(allowed, SPREAD_SHARE * scale.tolerance * scale.spread)
    allowed += scale.element_noise
    squares = torch.zeros((), dtype=torch.float64, device=oracle.device)
    excess = torch.full((), -torch.inf, dtype=oracle.dtype, device=oracle.device)
    for got, want in pieces(result, oracle):
        error = got - want
        squares += torch.dot(error, error)
        error.abs_().sub_(want.abs(), alpha=slope)
        excess = torch.maximum(excess, error.max().to(excess.dtype))
    if not float(excess) <= 0.999 * allowed:  # the arithmetic above rounds too
        return None
    rms = float(squares / oracle.numel()) ** 0.5
    return rms if rms <= scale.tolerance * scale.spread + NOISE_SHARE * scale.noise else None


def _examine(
    result: torch.Tensor, oracle: torch.Tensor, scale: Scale, moved: torch.Tensor | None = None
) -> Difference:
    """Every element by its own bound, with the worst of them."""
    wrong = bad = start = worst_index = 0
    squares, allowed_squares, worst, farthest = 0.0, 0.0, 0.0, -1.0
    for got, want, sway in pieces(result, oracle, moved):
        error, allowed, same = errors(got, want, scale, sway)
        mismatch = ~same & ~torch.isfinite(error)
        bad += int(mismatch.sum())
        wrong += int((~same & ~(error <= allowed)).sum())
        finite = torch.where(same | mismatch, 0.0, error)
        explained = 0.0 if sway is None else MOVED_SHARE[scale.tf32] * sway
        squares += float((finite - explained).clamp(min=0).square().sum(dtype=torch.float64))
        rounding = torch.where(same | mismatch, 0.0, _rounding(got, want, scale))
        allowed_squares += float(rounding.square().sum(dtype=torch.float64))
        # Where nothing finite is wrong, the place shown is that of the first bad element.
        tiny = torch.finfo(torch.float32).tiny
        high, index = torch.where(mismatch, tiny, finite / allowed.clamp(min=tiny)).max(0)
        if float(high) > farthest:
            farthest, worst, worst_index = float(high), float(finite[index]), start + int(index)
        start += got.numel()
    elements = oracle.numel()
    rms = (squares / max(1, elements)) ** 0.5
    rounding_rms = (allowed_squares / max(1, elements)) ** 0.5
    limit = scale.tolerance * scale.spread + rounding_rms + NOISE_SHARE * scale.noise
    return Difference(
        elements,
        rms / scale.spread if scale.spread else (float("inf") if rms else 0.0),
        wrong=wrong,
        not_finite=bad,
        worst=worst,
        worst_index=worst_index,
        drifted=rms > limit,
    )


def errors(
    got: torch.Tensor, want: torch.Tensor, scale: Scale, moved: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Absolute errors, what is allowed, and where both are the same NaN or infinity."""
    short = got.is_floating_point() and got.dtype != torch.float64
    value = got.float() if short else got.double()  # whole numbers are exact in double
    want = want.to(value.dtype)
    # What overflows in the output's own dtype is infinite there, and rightly so.
    rounded = want.to(got.dtype).to(value.dtype)
    same = (value == rounded) | (torch.isnan(value) & torch.isnan(want))
    error = (value - want).abs()
    floor = max(1.0, ABSOLUTE_SHARE * scale.spread)
    documented = scale.tolerance * (floor + want.abs())
    cap = SPREAD_SHARE * scale.tolerance * scale.spread
    allowed = documented.clamp(max=cap) + _rounding(got, want, scale) + scale.element_noise
    if moved is not None:
        allowed = torch.maximum(allowed, MOVED_SHARE[scale.tf32] * moved.to(allowed.dtype))
    return error, allowed, same


def _rounding(got: torch.Tensor, want: torch.Tensor, scale: Scale) -> torch.Tensor:
    """What is always allowed beside the tolerance: roundings, or what sums lose."""
    if not got.is_floating_point():
        return torch.zeros_like(want, dtype=torch.float32)
    info = torch.finfo(got.dtype)
    return want.abs() * scale.rounding(got.dtype) + info.tiny * info.eps


def lower_precision(
    result: torch.Tensor, relative_rms: float, oracle: torch.Tensor, scale: Scale
) -> str | None:
    """Why a float32 result that is within the tolerances is less precise than is asked, or none.

    `relative_rms` is its rms error over the output's spread. Meant for inputs of moderate size:
    on large ones a correct kernel may lose digits that PyTorch's order of operations keeps.
    """
    if result.dtype != torch.float32 or not scale.spread:
        return None
    rms = relative_rms * scale.spread
    limit = PRECISION_SHARE * scale.spread + PRECISION_NOISE[scale.tf32] * scale.noise
    if rms <= limit:
        return None
    mean, spread = mean_and_spread(oracle)  # a mean far above the spread is rounded too
    limit += scale.rounding(torch.float32) * (mean**2 + spread**2) ** 0.5
    if rms <= limit:
        return None
    asked = "TF32" if scale.tf32 else "float32"
    return (
        f"errors of lower precision than {asked}: rms {relative_rms:.2g} of the output's spread, "
        f"where {limit / scale.spread:.2g} is the most for {asked} arithmetic; {ADVICE[scale.tf32]}"
    )
