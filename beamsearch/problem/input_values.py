"""The values that inputs are filled with: the problem's own, and those that find other faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import torch

Distribution = Literal[
    "own",
    "normal",
    "outliers",
    "rising",
    "infinite",
    "large",
    "minus_infinite",
    "far_below",
    "ties",
    "huge",
    "tiny",
    "denormal",
    "not_a_number",
]
NOT_A_NUMBER: Distribution = "not_a_number"
"""Normal values with a few that are no numbers: what becomes of them is reported, and decides only
where that is asked for. Not one of `DISTRIBUTIONS`."""
DISTRIBUTIONS: tuple[Distribution, ...] = tuple(
    name for name in get_args(Distribution) if name != NOT_A_NUMBER
)
"""In the order in which they are tried: what most often shows a wrong kernel comes first."""

LARGE = {"float16": 2.0**6}
"""Factor on standard normal values by dtype; 1024 where none is given. A sum of squares of float16
values of 1024 overflows, which says nothing about a kernel."""
TINY = 2.0**-10
"""Factor on standard normal values: their squares are below the usual epsilons of 1e-5, and still
normal numbers in float16."""
HUGE = {"float16": 2.0**13}
"""Factor on standard normal values by dtype; 2^20 where none is given: nearly all are then beyond
65504, where a value that passes through float16 becomes infinite. In float16 six standard
deviations stay below that."""
OUTLIER = {"float16": 2.0**7}
"""Factor on a few standard normal values by dtype; 4096 where none is given. The square of one is
then that of millions of others together; products of two of them stay in float16's range."""
OUTLIERS = 64
"""How many there are in a tensor, about; one in a thousand in a small one, where more would hide
all other outputs behind theirs. Statistics of half of the elements miss half of them, and a sample
that holds none shows no sign of the others."""
FAR_BELOW = {"float16": (-300.0, -150.0), "bfloat16": (-300.0, -150.0)}
"""Where rows of `far_below` lie by dtype, from -1000 to -150 where none is given: the exponential
of each of their values is 0 in float32. In half types not farther: bfloat16 tells values to 1 in
256. In float32 a variance taken as mean of squares less square of mean is off by up to one in a
hundred there: a mistake, as two passes are off by less than one in a million."""
FAR_BELOW_SPREAD = 4.0
"""Standard deviation inside such a row: two steps of bfloat16 there."""
RISE = 6.0
"""How far rising values climb along each dimension: a maximum that is left behind is off by a
factor of hundreds in an exponential, and the last tenth of a softmax still holds under half."""
LEVELS = 2
"""Ties are whole numbers from -2 to 2, so that most windows and rows hold equal values."""


def draw(
    distribution: Distribution, shape: tuple[int, ...], device: str, dtype: torch.dtype
) -> torch.Tensor:
    """Values of a shape from the generator as it is seeded, made on the device.

    `normal`, `large`, `huge` and `tiny` are signed; `outliers` is normal but for a few values far
    from all others, so that what samples its inputs is wrong; `rising` is normal around a line that
    climbs along every dimension, from below zero to above it; `ties` begins with a sixteenth of
    zeros; `denormal` is normal with a quarter of subnormal numbers, so that what flushes them is
    right within the tolerance; `infinite` is normal with few positive infinities and so many
    negative ones that some windows hold nothing else. `own` is the problem's to draw.
    """
    import torch

    values = torch.randn(shape, device=device, dtype=dtype)
    if distribution in _SHAPED:
        _SHAPED[distribution](values)
    return values


def _tie(values: torch.Tensor) -> None:
    values.round_().clamp_(-LEVELS, LEVELS)
    values.view(-1)[: values.numel() // 16] = 0


def _rise(values: torch.Tensor) -> None:
    import torch

    for dimension, size in enumerate(values.shape):
        line = torch.linspace(-RISE / 2, RISE / 2, size, device=values.device, dtype=values.dtype)
        if size > 1:
            values += line.view(size, *[1] * (values.dim() - dimension - 1))


def _scale(values: torch.Tensor, by_dtype: dict[str, float], usual: float) -> None:
    values *= by_dtype.get(str(values.dtype).removeprefix("torch."), usual)


def _strew(values: torch.Tensor) -> None:
    import torch

    factor = OUTLIER.get(str(values.dtype).removeprefix("torch."), 2.0**12)
    chance = OUTLIERS / max(values.numel(), 1 << 16)
    far = torch.rand(values.shape, device=values.device) < chance
    values.copy_(torch.where(far, values * factor, values))
    if values.numel():
        values.view(-1)[values.numel() // 2] = factor


def _subnormal(values: torch.Tensor) -> None:
    import torch

    chance = torch.rand_like(values)
    small = (chance - 0.5) * torch.finfo(values.dtype).tiny
    values.copy_(torch.where(chance < 0.25, small, values))


def _infinite(values: torch.Tensor) -> None:
    import torch

    chance = torch.rand_like(values)
    values.masked_fill_(chance < 0.75, -torch.inf)
    values.masked_fill_(chance > 0.99, torch.inf)


def _minus_infinite(values: torch.Tensor) -> None:
    """One run in each row of the last dimension, of any length but never the whole row.

    Half of the runs begin with the row: there a kernel that goes through it block by block finds
    its first block, whatever its size, without a single number.
    """
    import torch

    shape, device = tuple(values.shape), values.device
    size = shape[-1] if shape else 1
    rows = (*shape[:-1], 1)
    length = (torch.rand(rows, device=device) * size).long().clamp_(max=max(0, size - 1))
    start = (torch.rand(rows, device=device) * (size - length + 1)).long()
    start.masked_fill_(torch.rand(rows, device=device) < 0.5, 0)
    index = torch.arange(size, device=device)
    values.masked_fill_(((index >= start) & (index < start + length)).view(shape), -torch.inf)


def _far_below(values: torch.Tensor) -> None:
    """One place for each index of the first dimension of several: a whole image or head lies far
    below zero, along whatever dimension a problem reduces it."""
    import torch

    low, high = FAR_BELOW.get(str(values.dtype).removeprefix("torch."), (-1000.0, -150.0))
    shape = tuple(values.shape)
    rows = (*(shape[:1] if len(shape) > 1 else ()), *[1] * len(shape))[: len(shape)]
    places = torch.rand(rows, device=values.device, dtype=values.dtype) * (high - low) + low
    values.mul_(FAR_BELOW_SPREAD).add_(places)


def _no_numbers(values: torch.Tensor) -> None:
    import torch

    if values.numel():
        chance = torch.rand(values.shape, device=values.device)
        values.masked_fill_(chance < 1 / 512, torch.nan)
        values.view(-1)[values.numel() // 2] = torch.nan


_SHAPED: dict[Distribution, Callable[[torch.Tensor], None]] = {
    "ties": _tie,
    "outliers": _strew,
    "rising": _rise,
    "large": partial(_scale, by_dtype=LARGE, usual=2.0**10),
    "huge": partial(_scale, by_dtype=HUGE, usual=2.0**20),
    "tiny": partial(_scale, by_dtype={}, usual=TINY),
    "denormal": _subnormal,
    "infinite": _infinite,
    "minus_infinite": _minus_infinite,
    "far_below": _far_below,
    NOT_A_NUMBER: _no_numbers,
}
"""What is made of standard normal values, in place."""


def vary_constants(model: torch.nn.Module) -> None:
    """Make parameters and buffers that hold one value everywhere hold several, never below it.

    A weight of ones or a bias of zeros, as normalisations start with, would let a kernel pass that
    leaves it out. What was positive, such as a variance, stays so.
    """
    import torch

    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            if tensor.is_floating_point() and tensor.numel() and tensor.min() == tensor.max():
                tensor.add_(torch.rand_like(tensor), alpha=0.5)
