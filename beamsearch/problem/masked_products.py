"""Products of which a mask leaves a triangle: what a kernel need not compute of them."""

from __future__ import annotations

import functools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink

_MASK = re.compile(r"mask|tril|triu|-inf")
"""What the source of a reference holds that leaves a triangle of anything."""
DRAWS = 3
"""Draws in which an element has to be nothing: what is so by chance, as behind a ReLU, is another
in each."""


@dataclass
class _Product:
    """One product of matrices, as it was called."""

    left: Any
    right: Any
    result: Any

    def flops(self) -> int:
        """Of the whole product."""
        return 2 * int(self.result.numel()) * int(self.left.shape[-1])


class _Products(TorchFunctionMode):
    """Notes the products of matrices that a reference calls by name, in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[_Product] = []

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Call it; keep what a product's operands and result are."""
        result = func(*args, **(kwargs or {}))
        name = getattr(func, "__name__", "")
        if name in ("matmul", "__matmul__", "bmm", "mm") and len(args) == 2 and not kwargs:
            left, right = args
            if left.dim() > 1 and right.dim() > 1:
                if result.requires_grad:
                    result.retain_grad()
                self.seen.append(_Product(left, right, result))
        return result


@functools.lru_cache(maxsize=64)
def masked_flops(problem: Problem) -> int:
    """FLOPs of the reference's products that no output needs, at the problem's own shapes.

    Seen where the problem is shrunk: of a square of scores the triangle without a gradient, of a
    square of weights the one that holds nothing but zeros, whatever the inputs. A product counts
    once, for its larger saving. 0 where the problem cannot be shrunk or has no mask.
    """
    if problem.backward or not _MASK.search(problem.source):
        return 0
    whole = _products(instantiate(problem, "meta"))
    try:
        small = shrink(problem)
        draws = [
            _products(instantiate(small, "cpu", n, "own" if n == 0 else "normal"), gradients=True)
            for n in range(DRAWS)
        ]
    except ProblemError:
        return 0
    if any(len(draw) != len(whole) for draw in draws):
        return 0
    return sum(_unneeded(product, seen) for product, *seen in zip(whole, *draws, strict=True))


def _products(instance: Any, *, gradients: bool = False) -> list[_Product]:
    for value in instance.inputs if gradients else ():
        if isinstance(value, torch.Tensor) and value.is_floating_point():
            value.requires_grad_(True)
    products = _Products()
    with products:
        outputs = outputs_of(instance.model(*instance.inputs))
    ends = [output for output in outputs if output.requires_grad]
    if gradients and ends:
        torch.autograd.backward(ends, [torch.randn_like(end) for end in ends])
    return products.seen


def _unneeded(product: _Product, seen: Sequence[_Product]) -> int:
    """FLOPs of one product at its true shape, by what was seen of it in every draw."""
    length = product.result.shape[-1] if _is_square(product.result) else 0
    saved = 0.0
    if length and all(one.result.grad is not None for one in seen):
        saved = _triangle([one.result.grad for one in seen], length)
    if _is_square(product.left):
        length = product.left.shape[-1]
        saved = max(saved, _triangle([one.left.detach() for one in seen], length))
    return round(product.flops() * saved)


def _is_square(tensor: Any) -> bool:
    return bool(tensor.dim() > 1 and tensor.shape[-1] == tensor.shape[-2] > 2)


def _triangle(tensors: Sequence[Any], length: int) -> float:
    """Share (0..1) of a square of this length that a mask leaves empty, where the small squares
    seen are empty on one side of their diagonal, in every draw, and nowhere else."""
    size = tensors[0].shape[-1]
    if not all(_is_square(tensor) for tensor in tensors):
        return 0.0
    filled = torch.stack([(t.reshape(-1, size, size) != 0).any(0) for t in tensors]).any(0)
    for diagonal in (-1, 0, 1):
        whole = torch.ones(size, size, dtype=torch.bool)
        for sided in (torch.tril, torch.triu):
            left = sided(whole, diagonal if sided is torch.tril else -diagonal)
            # The softmax of a row with one score has no gradient: up to a row may be missing.
            missing = int((left & ~filled).sum())
            if not (filled & ~left).any() and missing < size and not left.all():
                rows = torch.arange(1, length + 1) + diagonal
                return 1 - float(rows.clamp(0, length).sum()) / length**2
    return 0.0
