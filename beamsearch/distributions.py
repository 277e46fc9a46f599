"""The values that inputs are filled with: the problem's own, and those that find other faults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

if TYPE_CHECKING:
    import torch

Distribution = Literal["own", "normal", "rising", "infinite", "large", "ties", "tiny", "denormal"]
DISTRIBUTIONS: tuple[Distribution, ...] = get_args(Distribution)
"""In the order in which they are tried: what most often shows a wrong kernel comes first."""

LARGE = {"float16": 2.0**6}
"""Factor on standard normal values by dtype; 1024 where none is given. A sum of squares of float16
values of 1024 overflows, which says nothing about a kernel."""
TINY = 2.0**-10
"""Factor on standard normal values: their squares are below the usual epsilons of 1e-5, and still
normal numbers in float16."""
RISE = 6.0
"""How far rising values climb along each dimension: a maximum that is left behind is off by a
factor of hundreds in an exponential, and the last tenth of a softmax still holds under half."""
LEVELS = 2
"""Ties are whole numbers from -2 to 2, so that most windows and rows hold equal values."""


def draw(
    distribution: Distribution, shape: tuple[int, ...], device: str, dtype: torch.dtype
) -> torch.Tensor:
    """Values of a shape from the generator as it is seeded, made on the device.

    `normal`, `large` and `tiny` are signed; `rising` is normal around a line that climbs
    along every dimension, from below zero to above it; `ties` begins with a sixteenth of zeros;
    `denormal` is normal with a quarter of subnormal numbers, so that what flushes them is right
    within the tolerance; `infinite` is normal with few positive infinities and so many negative
    ones that some windows hold nothing else. `own` is the problem's to draw.
    """
    import torch

    values = torch.randn(shape, device=device, dtype=dtype)
    if distribution == "ties":
        values.round_().clamp_(-LEVELS, LEVELS)
        values.view(-1)[: values.numel() // 16] = 0
    elif distribution == "rising":
        for dimension, size in enumerate(shape):
            line = torch.linspace(-RISE / 2, RISE / 2, size, device=device, dtype=dtype)
            if size > 1:
                values += line.view(size, *[1] * (len(shape) - dimension - 1))
    elif distribution == "large":
        values *= LARGE.get(str(dtype).removeprefix("torch."), 2.0**10)
    elif distribution == "tiny":
        values *= TINY
    elif distribution == "denormal":
        chance = torch.rand(shape, device=device, dtype=dtype)
        small = (chance - 0.5) * torch.finfo(dtype).tiny
        values = torch.where(chance < 0.25, small, values)
    elif distribution == "infinite":
        chance = torch.rand(shape, device=device, dtype=dtype)
        values.masked_fill_(chance < 0.75, -torch.inf)
        values.masked_fill_(chance > 0.99, torch.inf)
    return values


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
