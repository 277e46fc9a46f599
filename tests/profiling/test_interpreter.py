"""Triton's interpreter, mended: it computes what a GPU computes."""

import os
import subprocess
import sys

from tests import PYTHONPATH

KERNELS = """
import torch, triton, triton.language as tl
from triton.language.extra import libdevice
from kernel_profiling.estimate.interpreter import mend_interpreter
mend_interpreter()

@triton.jit
def narrow(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    some = n > 0
    mask = some & (i < n)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=mask, other=0.0).to(tl.bfloat16), mask=mask)

@triton.jit
def product(a_ptr, b_ptr, c_ptr, loops, precision: tl.constexpr = None):
    i = tl.arange(0, 16)
    at = i[:, None] * 16 + i[None, :]
    c = tl.zeros((16, 16), dtype=tl.float32)
    for _ in range(loops):
        c += tl.dot(tl.load(a_ptr + at), tl.load(b_ptr + at), input_precision=precision)
    tl.store(c_ptr + at, c)

@triton.jit
def counts(y_ptr, loops, step):
    total = tl.zeros((), tl.int64)
    for i in tl.range(0, loops):
        total += i.to(tl.int64) * step
    for i in range(loops):
        total += (2 * i + 1).to(tl.int64) * step
    tl.store(y_ptr, total)

@triton.jit
def arithmetic(x_ptr, y_ptr, out_ptr, index_ptr, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x, y = tl.load(x_ptr + i), tl.load(y_ptr + i)
    tl.store(out_ptr + i, x + y)
    tl.store(out_ptr + n + i, x * y - x)
    tl.store(out_ptr + 2 * n + i, x / y)
    tl.store(out_ptr + 3 * n + i, tl.maximum(x, y))
    tl.store(out_ptr + 4 * n + i, tl.where(x < y, -x, tl.abs(y)))
    tl.store(out_ptr + 5 * n + i, tl.clamp(x, -0.5, 0.5))
    tl.store(out_ptr + 6 * n + i, tl.cumsum(x, 0))
    tl.store(out_ptr + 7 * n, tl.sum(x, 0))
    tl.store(out_ptr + 7 * n + 1, tl.min(x, 0))
    tl.store(index_ptr, tl.argmax(x, 0))

@triton.jit
def casts(whole_ptr, half_ptr, short_ptr, out_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(short_ptr + i, tl.load(whole_ptr + i).to(tl.bfloat16))
    tl.store(short_ptr + BLOCK + i, tl.load(half_ptr + i).to(tl.bfloat16))
    tl.store(short_ptr + 2 * BLOCK, tl.load(whole_ptr).to(tl.bfloat16))
    short = tl.load(short_ptr + i)
    tl.store(out_ptr + i, short.to(tl.int32))
    tl.store(out_ptr + BLOCK + i, short.to(tl.float16).to(tl.int32))

@triton.jit
def library(x_ptr, y_ptr, flags_ptr, BLOCK: tl.constexpr):
    tl.extra.cuda.gdc_wait()
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i)
    y = libdevice.tanh(x) + libdevice.pow(libdevice.abs(x), 2.0)
    y += libdevice.erf(x) + tl.extra.cuda.libdevice.fast_expf(x) + libdevice.fma(x, x, 1.0)
    tl.store(y_ptr + i, y * libdevice.sqrt(2.0))
    tl.store(flags_ptr + i, libdevice.isnan(x))
    tl.extra.cuda.gdc_launch_dependents()

@triton.jit
def narrow_library(x_ptr, y_ptr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(y_ptr + i, libdevice.exp(tl.load(x_ptr + i)))

x = torch.randn(64)
x[5] = float("nan")
y, flags = torch.empty(64), torch.empty(64, dtype=torch.int32)
library[(1,)](x, y, flags, BLOCK=64)
expected = (x.tanh() + x * x + x.erf() + x.exp() + x * x + 1) * 2 ** 0.5
assert torch.allclose(y, expected, rtol=1e-6, atol=1e-6, equal_nan=True)
assert torch.equal(flags, x.isnan().int())
try:
    narrow_library[(1,)](x.bfloat16(), y.bfloat16(), BLOCK=64)
except Exception as error:
    assert "libdevice.exp takes float32 or float64" in str(error), error
else:
    raise AssertionError("a compiler refuses this")

whole = torch.arange(-32, 32, dtype=torch.int8)
half, short = torch.randn(64).half(), torch.empty(129, dtype=torch.bfloat16)
back = torch.empty(128, dtype=torch.int32)
casts[(1,)](whole, half, short, back, BLOCK=64)
assert torch.equal(short[:64], whole.to(torch.bfloat16)) and short[128] == -32
assert torch.equal(short[64:128], half.to(torch.bfloat16))
assert torch.equal(back, whole.int().repeat(2))

x = torch.randn(1000)
x[:4] = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.00390625])
y = torch.empty(1000, dtype=torch.bfloat16)
narrow[(1,)](x, y, 1000, BLOCK=1024)
assert torch.equal(y[1:], x[1:].to(torch.bfloat16)) and y[0].isnan()

a, b = (torch.randn(16, 16).to(torch.bfloat16) for _ in range(2))
c = torch.empty(16, 16)
product[(1,)](a, b, c, 2)
assert torch.allclose(c, 2 * (a.float() @ b.float()), rtol=1e-5, atol=1e-5)

total = torch.empty(1, dtype=torch.int64)
counts[(1,)](total, 4, 1 << 40)
assert total.item() == (6 + 16) << 40, total

a, b = torch.randn(16, 16), torch.randn(16, 16)
cut = [(x.view(torch.int32) & ~0x1FFF).view(torch.float32) for x in (a, b)]
for precision, (left, right) in {None: cut, "tf32": cut, "tf32x3": (a, b), "ieee": (a, b)}.items():
    product[(1,)](a, b, c, 1, precision)
    assert torch.allclose(c, left @ right, rtol=1e-5, atol=1e-5), precision
assert not torch.allclose(cut[0] @ cut[1], a @ b, rtol=1e-5, atol=1e-5)

x, y = torch.randn(2, 64).to(torch.bfloat16)
out, index = torch.empty(8, 64, dtype=torch.bfloat16), torch.empty(1, dtype=torch.int32)
arithmetic[(1,)](x, y, out, index, 64, BLOCK=64)
wide = x.float()
for row, expected in enumerate((
    x + y, x * y - x, x / y, torch.maximum(x, y), torch.where(x < y, -x, y.abs()),
    x.clamp(-0.5, 0.5), wide.cumsum(0).to(torch.bfloat16),
)):
    assert torch.equal(out[row], expected), (row, out[row], expected)
assert out[7, 0] == wide.sum().to(torch.bfloat16) and out[7, 1] == x.min()
assert index.item() == x.argmax()
"""


def test_conversions_masks_products_and_loops_are_a_gpus(tmp_path):
    path = tmp_path / "kernels.py"
    path.write_text(KERNELS)
    environment = os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": PYTHONPATH}
    subprocess.run([sys.executable, path], env=environment, check=True, timeout=120)
