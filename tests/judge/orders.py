"""Reductions as kernels do them: the same sums in other orders, and blocks that are merged."""

from __future__ import annotations

from collections.abc import Callable

import torch

Total = Callable[[torch.Tensor], torch.Tensor]
"""The sum over the last dimension, in float32."""


def in_turn(parts: torch.Tensor) -> torch.Tensor:
    """Over the last dimension, one after the other."""
    total = torch.zeros(parts.shape[:-1], dtype=parts.dtype)
    for part in parts.unbind(-1):
        total = total + part
    return total


def in_blocks(x: torch.Tensor, size: int = 32) -> torch.Tensor:
    """A block's lanes each add up their own; then the lanes."""
    return in_turn(x.unflatten(-1, (-1, size)).transpose(-1, -2)).sum(-1)


def pairwise(x: torch.Tensor) -> torch.Tensor:
    while x.shape[-1] > 1:
        if x.shape[-1] % 2:
            x = torch.nn.functional.pad(x, (0, 1))
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def compensated(x: torch.Tensor, size: int = 32) -> torch.Tensor:
    """Kahan's sum, lane by lane."""
    total = lost = torch.zeros((*x.shape[:-1], size))
    for part in x.unflatten(-1, (-1, size)).unbind(-2):
        wanted = part - lost
        new = total + wanted
        lost, total = (new - total) - wanted, new
    return total.sum(-1)


def split(x: torch.Tensor) -> torch.Tensor:
    """Four programs, whose sums are added in another order than theirs."""
    parts = [in_blocks(part) for part in x.chunk(4, -1)]
    return (parts[3] + parts[0]) + (parts[2] + parts[1])


TOTALS: dict[str, Total] = {
    "in turn": in_turn,
    "in blocks": in_blocks,
    "backwards": lambda x: in_blocks(x.flip(-1)),
    "pairwise": pairwise,
    "compensated": compensated,
    "split": split,
    "in float64": lambda x: x.double().sum(-1).float(),
}


def without_the_last(x: torch.Tensor) -> torch.Tensor:
    return in_blocks(x[..., :-32])


def one_twice(x: torch.Tensor) -> torch.Tensor:
    return in_blocks(x) + x[..., 7]


def in_bfloat16(x: torch.Tensor) -> torch.Tensor:
    """Accumulated in bfloat16."""
    total = torch.zeros((*x.shape[:-1], 32), dtype=torch.bfloat16)
    for part in x.unflatten(-1, (-1, 32)).unbind(-2):
        total = total + part.bfloat16()
    return total.float().sum(-1)


def through_float16(x: torch.Tensor) -> torch.Tensor:
    return in_blocks(x.half().float())


WRONG_TOTALS: dict[str, Total] = {
    "last block dropped": without_the_last,
    "one element twice": one_twice,
    "bfloat16": in_bfloat16,
    "through float16": through_float16,
}

Softmax = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Largest value, sum of exponentials below it, and their weighted values."""


def online(
    scores: torch.Tensor,
    values: torch.Tensor,
    blocks: list[tuple[int, int]],
    *,
    base2: bool = False,
    rescale: bool = True,
    start: float = -torch.inf,
    guarded: bool = True,
) -> Softmax:
    """A softmax in one pass over blocks of scores (..., n), weighing values (..., n, d).

    `base2`: powers of two, the scores times log2(e). Wrong without `rescale` (sums keep the scale
    of an earlier maximum), with a `start` above minus infinity, or not `guarded` against a block
    that holds nothing but minus infinity.
    """
    power = torch.exp2 if base2 else torch.exp
    scores = scores * 1.4426950408889634 if base2 else scores
    largest = torch.full(scores.shape[:-1], start)
    total = torch.zeros_like(largest)
    weighted = torch.zeros((*largest.shape, values.shape[-1]))
    for first, last in blocks:
        part = scores[..., first:last]
        new = torch.maximum(largest, part.amax(-1))
        below = torch.where(new == -torch.inf, 0.0, new) if guarded else new
        shrunk = power(largest - below) if rescale else torch.ones_like(new)
        weights = power(part - below[..., None])
        total = total * shrunk + weights.sum(-1)
        weighted = weighted * shrunk[..., None] + weights @ values[..., first:last, :]
        largest = new
    return largest, total, weighted


def cut(size: int, width: int) -> list[tuple[int, int]]:
    return [(first, min(size, first + width)) for first in range(0, size, width)]


def merged(first: Softmax, second: Softmax) -> Softmax:
    """Two parts of one row, as split-K attention puts them together."""
    largest = torch.maximum(first[0], second[0])
    below = torch.where(largest == -torch.inf, 0.0, largest)
    a, b = (first[0] - below).exp(), (second[0] - below).exp()
    total = first[1] * a + second[1] * b
    return largest, total, first[2] * a[..., None] + second[2] * b[..., None]
