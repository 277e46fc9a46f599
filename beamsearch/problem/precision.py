"""How imprecise products of float32 may be: one rule for reference, baselines, kernels and floor.

`reference`: as PyTorch's own are by default, which is what baselines are timed with: convolutions
in TF32, matrix products in float32. `strict`: no TF32 anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from beamsearch.settings import Precision


def set_products(precision: Precision) -> None:
    """Have this process compute products of float32 by the rule, whatever was set before."""
    import torch

    torch.set_float32_matmul_precision("highest")
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = precision == "reference"


@contextmanager
def products(precision: Precision) -> Iterator[None]:
    """Products by the rule within, and as before afterwards."""
    import torch

    matmul = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        flags: Any = torch.backends.cudnn.flags
        with flags(enabled=True, allow_tf32=precision == "reference"):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul
