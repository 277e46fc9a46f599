"""Small Triton functions that stand in for those of the compiler's own run-time library.

A converted kernel holds a copy of the ones it calls, so that its file stands alone. Each takes and
returns what its namesake does; where they differ is in the last bits of `exp` and `tanh`.
"""

# mypy: ignore-errors
# ruff: noqa: PLR0124 - a NaN is what is not equal to itself

import triton
import triton.language as tl


@triton.jit
def promote_to_tensor(x):
    return x + tl.zeros((1,), tl.int1)


@triton.jit
def maximum(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def max2(a, dim):
    return tl.reduce(a, dim, maximum)


@triton.jit
def min2(a, dim):
    return tl.reduce(a, dim, minimum)


@triton.jit
def times(a, b):
    return a * b


@triton.jit
def prod(a, axis):
    return tl.reduce(a, axis, times)


@triton.jit
def either(a, b):
    return a | b


@triton.jit
def any_of(a, dim):
    return tl.reduce(a, dim, either)


@triton.jit
def maximum_with_index(a, a_index, b, b_index):
    # A NaN is larger than any number; among equals the first one counts.
    a_nan, b_nan = a != a, b != b
    same = (a == b) | (a_nan & b_nan)
    first = (a > b) | (a_nan & (b == b)) | (same & (a_index < b_index))
    return tl.where(first, a, b), tl.where(first, a_index, b_index)


@triton.jit
def minimum_with_index(a, a_index, b, b_index):
    a_nan, b_nan = a != a, b != b
    same = (a == b) | (a_nan & b_nan)
    first = (a < b) | (a_nan & (b == b)) | (same & (a_index < b_index))
    return tl.where(first, a, b), tl.where(first, a_index, b_index)


@triton.jit
def max_with_index(value, index, dim):
    return tl.reduce((value, index), dim, maximum_with_index)


@triton.jit
def min_with_index(value, index, dim):
    return tl.reduce((value, index), dim, minimum_with_index)


@triton.jit
def div_floor_integer(a, b):
    # Triton divides towards zero.
    quotient = a // b
    inexact = quotient * b != a
    return tl.where(((a < 0) != (b < 0)) & inexact, quotient - 1, quotient)


@triton.jit
def remainder_integer(a, b):
    rest = a % b
    return tl.where((rest != 0) & ((a < 0) != (b < 0)), rest + b, rest)


@triton.jit
def select_one(x, mask, dim, keep_dims=False):
    return tl.sum(tl.where(mask, x, 0), dim, keep_dims)


@triton.jit
def tanh(x):
    # (1 - e^-2|x|) / (1 + e^-2|x|) loses its digits near zero, where the series has them.
    size = tl.abs(x)
    power = tl.exp(-2.0 * size)
    far = (1.0 - power) / (1.0 + power)
    square = x * x
    terms = 2.0 / 15 + square * (-17.0 / 315 + square * (62.0 / 2835))
    near = x * (1.0 + square * (-1.0 / 3 + square * terms))
    return tl.where(size < 0.25, near, tl.where(x < 0, -far, far))


@triton.jit
def online_softmax_combine(top, total, value, fast: tl.constexpr, strict: tl.constexpr = False):
    # A row that is -inf so far has a sum of nothing; exp(-inf - -inf) would be NaN.
    new_top = maximum(top, value)
    empty = new_top == float("-inf")
    before = tl.where(empty, 1.0, tl.exp(top - new_top))
    return new_top, total * before + tl.where(empty, 1.0, tl.exp(value - new_top))


@triton.jit
def online_softmax_reduce(top, total, dim, fast: tl.constexpr, strict: tl.constexpr = False):
    new_top = max2(top, dim)
    highest = tl.expand_dims(new_top, dim)
    below = tl.where(highest == float("-inf"), 0.0, top - highest)
    return new_top, tl.sum(total * tl.exp(below), dim)


@triton.jit
def welford_reduce(value, mean, m2, weight, first):
    # With a weight of zero the update gives the first value itself.
    weight = weight + 1
    delta = value - mean
    mean = mean + delta / weight
    return mean, m2 + delta * (value - mean), weight


@triton.jit
def welford_combine(mean_a, m2_a, weight_a, mean_b, m2_b, weight_b):
    delta = tl.where(mean_a == mean_b, 0.0, mean_b - mean_a)
    weight = weight_a + weight_b
    share = tl.where(weight == 0.0, 0.0, weight_b / weight)
    return mean_a + delta * share, m2_a + m2_b + delta * delta * weight_a * share, weight


@triton.jit
def welford(mean, m2, weight, dim):
    return tl.reduce((mean, m2, weight), dim, welford_combine)
