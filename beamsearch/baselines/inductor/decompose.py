"""A convolution as operations that the compiler writes itself, where it would call the library.

The compiler has Triton templates for plain convolutions alone, and hands the others to cuDNN.
Written as a product over the kernel's taps it is code that the compiler fuses: a sum of shifted
inputs where every channel has its own filter, and a matrix product of weights and gathered inputs
otherwise. A transposed convolution is, for each remainder of the output's index by the stride, a
plain one over the taps that meet inputs there (the others meet nothing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch

TEMPLATES = (2, 3)
"""Dimensions that the compiler has convolution templates for."""


@dataclass(frozen=True)
class Axis:
    """The taps of one dimension: output `q` sees inputs `start + q * stride + j * step`, `j` from 0
    to `taps`, with weight `first + j * every`."""

    taps: int
    outputs: int
    start: int
    step: int
    stride: int
    first: int
    every: int

    @property
    def last(self) -> int:
        """The largest input that any output sees."""
        return self.start + (self.outputs - 1) * self.stride + (self.taps - 1) * self.step


def decompositions() -> dict[Any, Any]:
    """For `compile_fx`: the compiler's own table, and `aten.convolution`."""
    from torch._inductor.decomposition import select_decomp_table

    return {**select_decomp_table(), torch.ops.aten.convolution.default: convolution}


@dataclass(frozen=True)
class Convolution:
    """Arguments of `aten.convolution` beside its tensors, a value a dimension."""

    stride: Sequence[int]
    padding: Sequence[int]
    dilation: Sequence[int]
    transposed: bool
    output_padding: Sequence[int]
    groups: int


def convolution(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, *options: Any
) -> Any:
    """`aten.convolution`, in any number of dimensions; NotImplemented where a template does it."""
    how = Convolution(*options)
    plain = not how.transposed and how.groups == 1 and set(how.dilation) == {1}
    if plain and x.dim() - 2 in TEMPLATES:
        return NotImplemented
    return taken_apart(x, weight, bias, how)


def taken_apart(
    x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, how: Convolution
) -> torch.Tensor:
    """The convolution as products and sums over its taps."""
    facts = list(
        zip(x.shape[2:], weight.shape[2:], how.stride, how.padding, how.dilation, strict=True)
    )
    # The weight with its first dimension split by groups.
    grouped = weight.reshape(how.groups, weight.shape[0] // how.groups, *weight.shape[1:])
    if how.transposed:
        out = _transposed(x, grouped.transpose(1, 2), how, facts)
    else:
        axes = [
            Axis(k, (n + 2 * p - d * (k - 1) - 1) // s + 1, -p, d, s, 0, 1)
            for n, k, s, p, d in facts
        ]
        out = _correlate(x, grouped, axes)
    return out if bias is None else out + bias.reshape(1, -1, *[1] * (x.dim() - 2))


def _transposed(
    x: torch.Tensor, weight: torch.Tensor, how: Convolution, facts: Sequence[tuple[int, ...]]
) -> torch.Tensor:
    shape = [
        (n - 1) * s - 2 * p + d * (k - 1) + extra + 1
        for (n, k, s, p, d), extra in zip(facts, how.output_padding, strict=True)
    ]
    out = x.new_zeros(x.shape[0], how.groups * weight.shape[1], *shape)
    for rests in product(*(range(min(s, size)) for s, size in zip(how.stride, shape, strict=True))):
        axes = [
            _met(rest, k, s, p, d, size)
            for rest, (_, k, s, p, d), size in zip(rests, facts, shape, strict=True)
        ]
        met = [axis for axis in axes if axis is not None]
        if len(met) == len(axes):
            where = list(zip(rests, how.stride, strict=True))
            out = _placed(out, _correlate(x, weight, met), where)
    return out


def _placed(
    out: torch.Tensor, part: torch.Tensor, where: Sequence[tuple[int, int]], dim: int = 2
) -> torch.Tensor:
    """`out` with `part` at every `step`-th place from `first` on, for each (first, step) of
    `where`: the compiler's graph takes no assignment."""
    if not where:
        return part
    (first, step), *others = where
    inner = torch.ops.aten.slice(out, dim, first, None, step)
    return torch.slice_scatter(out, _placed(inner, part, others, dim + 1), dim, first, None, step)


def _met(
    rest: int, kernel: int, stride: int, padding: int, dilation: int, size: int
) -> Axis | None:
    """The taps that meet an input where the output's index leaves `rest`; None where none does."""
    taps = [k for k in range(kernel) if (rest + padding - k * dilation) % stride == 0]
    if not taps:
        return None
    every = stride // math.gcd(stride, dilation)
    start = (rest + padding - taps[-1] * dilation) // stride
    step = every * dilation // stride
    return Axis(len(taps), -(-(size - rest) // stride), start, step, 1, taps[-1], -every)


def _correlate(x: torch.Tensor, weight: torch.Tensor, axes: Sequence[Axis]) -> torch.Tensor:
    """Sum over channels and taps. `weight`: (groups, channels out, channels in, *kernel)."""
    groups, channels_out, channels_in = weight.shape[:3]
    padding = [
        amount
        for axis, size in reversed(list(zip(axes, x.shape[2:], strict=True)))
        for amount in (-axis.start, axis.last + 1 - size)
    ]
    padded = torch.constant_pad_nd(x, padding) if any(padding) else x
    outputs = [axis.outputs for axis in axes]
    if channels_in == channels_out == 1:
        return _shifted_sum(padded, weight, axes)
    n, strides = x.shape[0], padded.contiguous().stride()
    windows = padded.contiguous().as_strided(
        (n, x.shape[1], *(axis.taps for axis in axes), *outputs),
        (
            *strides[:2],
            *(axis.step * own for axis, own in zip(axes, strides[2:], strict=True)),
            *(axis.stride * own for axis, own in zip(axes, strides[2:], strict=True)),
        ),
    )
    taps = math.prod(axis.taps for axis in axes)
    columns = windows.reshape(n, groups, channels_in * taps, math.prod(outputs))
    for dim, axis in enumerate(axes, start=3):
        ends = sorted((axis.first, axis.first + (axis.taps - 1) * axis.every))
        weight = torch.ops.aten.slice(weight, dim, ends[0], ends[1] + 1, abs(axis.every))
        weight = weight.flip(dim) if axis.every < 0 else weight
    rows = weight.reshape(groups, channels_out, channels_in * taps)
    return torch.matmul(rows, columns).reshape(n, groups * channels_out, *outputs)


def _shifted_sum(padded: torch.Tensor, weight: torch.Tensor, axes: Sequence[Axis]) -> torch.Tensor:
    """Every channel by its own filter: one product and sum a tap, kept in float32 or better."""
    wide = torch.promote_types(padded.dtype, torch.float32)
    total: torch.Tensor | None = None
    for tap in product(*(range(axis.taps) for axis in axes)):
        window: Any = padded
        for dim, (axis, j) in enumerate(zip(axes, tap, strict=True)):
            first = j * axis.step
            stop = first + (axis.outputs - 1) * axis.stride + 1
            window = torch.ops.aten.slice(window, 2 + dim, first, stop, axis.stride)
        own = weight
        for axis, j in zip(axes, tap, strict=True):
            own = own.select(3, axis.first + j * axis.every)
        own = own.reshape(1, -1, *[1] * len(axes))
        term = window.to(wide) * own.to(wide)
        total = term if total is None else total + term
    assert total is not None
    return total.to(padded.dtype)
