"""What the compiler made of products and loops, from real compilations for an H200."""

from pathlib import Path

import pytest
import torch

from kernel_profiling.profile import Launch
from tests.profiling.test_static import compiled, meta

SOURCE = """
import torch, triton
import triton.language as tl

@triton.jit
def product_kernel(a, b, c, K, B: tl.constexpr, BK: tl.constexpr, P: tl.constexpr, S: tl.constexpr):
    m, n, k = tl.arange(0, B), tl.arange(0, B), tl.arange(0, BK)
    acc = tl.zeros((B, B), tl.float32)
    total = tl.zeros((B,), tl.float32)
    for start in range(0, K, BK):
        x = tl.load(a + m[:, None] * K + (start + k)[None, :])
        y = tl.load(b + (start + k)[:, None] * B + n[None, :])
        if S:
            total += tl.sum(x.to(tl.float32), 1)
        acc = tl.dot(x, y, acc, input_precision=P)
    tl.store(c + m[:, None] * B + n[None, :], acc + total[:, None])

def kernel_function(a, b, precision, stages, total):
    K, B = b.shape
    c = torch.empty(B, B, dtype=torch.float32, device=a.device)
    product_kernel[(1,)](a, b, c, K, B, 32, precision, total, num_stages=stages)
    return c
"""


def launch(
    folder: Path,
    dtype: torch.dtype,
    *,
    precision: str = "tf32",
    stages: int = 3,
    total: bool = False,
) -> Launch:
    a, b = meta(128, 4096, dtype=dtype), meta(4096, 128, dtype=dtype)
    (found,) = compiled(folder, SOURCE, a, b, precision, stages, total).launches
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("dtype", "precision", "words"),
    [
        (torch.bfloat16, "tf32", "line 15: a product of 128 x 128 x 32 by wgmma, asynchronous"),
        (torch.float32, "tf32", "by wgmma, asynchronous"),
        (torch.float32, "tf32x3", "line 15: 3 products of 128 x 128 x 32 by wgmma"),
        (torch.float32, "ieee", "on the ordinary cores, without matrix instructions"),
    ],
)
def test_a_product_says_which_unit_computes_it(
    tmp_path: Path, dtype: torch.dtype, precision: str, words: str
) -> None:
    found = launch(tmp_path, dtype, precision=precision)
    assert any(words in fact for fact in found.lowering), found.lowering
    on_matrix_units = "ordinary" not in "".join(found.lowering)
    assert on_matrix_units == bool(found.matrix_instructions), "as the machine code says"


def test_a_loop_says_whether_its_loads_are_ahead(tmp_path: Path) -> None:
    (ahead,) = [fact for fact in launch(tmp_path, torch.bfloat16).lowering if "a turn" in fact]
    assert "the loop at line 10" in ahead
    assert "asynchronous copies: 2 into buffers of" in ahead and "waited for" not in ahead
    found = launch(tmp_path, torch.bfloat16, stages=1).lowering
    (waiting,) = [fact for fact in found if "a turn" in fact]
    assert "loads that are waited for, not pipelined: 2 (lines 11, 12)" in waiting
    assert "asynchronous copies" not in waiting


def test_a_loop_says_what_else_a_turn_does(tmp_path: Path) -> None:
    plain = launch(tmp_path, torch.bfloat16).lowering
    summing = launch(tmp_path, torch.bfloat16, total=True).lowering
    assert "reductions across lanes: 1" in summing[-1]
    assert not any("reductions" in fact for fact in plain)


def test_a_kernel_without_loops_and_products_has_nothing_to_tell(tmp_path: Path) -> None:
    from tests.profiling.test_static import COPY

    (found,) = compiled(tmp_path, COPY, meta(1 << 20)).launches
    assert found.lowering == []


def test_products_that_are_alike_are_told_once_with_their_lines(tmp_path: Path) -> None:
    one = "        acc = tl.dot(x, y, acc, input_precision=P)\n"
    a, b = meta(128, 4096, dtype=torch.bfloat16), meta(4096, 128, dtype=torch.bfloat16)
    for times, where in ((3, "lines 15, 16, 17: 3 products"), (6, "lines 15 to 20: 6 products")):
        source = SOURCE.replace(one, one * times)
        (found,) = compiled(tmp_path, source, a, b, "tf32", 3, False).launches
        (products,) = [fact for fact in found.lowering if "128 x 128 x 32" in fact]
        assert products.startswith(f"{where} of 128 x 128 x 32 by wgmma, asynchronous")
