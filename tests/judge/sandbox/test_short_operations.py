"""What the interpreter does in one step is bit by bit what it does in many, and counts alike."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import PYTHONPATH

ALL = (
    *("a + b", "a - b", "a * b", "a + c", "c + a", "c - a", "a + 3", "3 + a", "5 - a", "a * -2"),
    *("2 * a", "(a < b)", "(a >= c)", "(a != 0)", "(0 <= a)", "(a == b)", "(a > -1)", "a + n"),
    *("top + b", "a * side", "(top < side)", "top - side", "(c + top) + b"),
    *(
        "top + tl.arange(0, N)",
        "tl.arange(0, 4)[None, :] + a",
        "side + side",
        "tl.arange(0, N) * b",
    ),
    *(
        "tl.load(x + columns + rows[:, None] * N)",
        "tl.load((x + rows)[:, None] + columns[None, :])",
    ),
    *("a + C", "C * a", "tl.load(x + place * 1)", "tl.load((x + c0) + columns[None, :])"),
)
INTEGERS = (
    *("a // (b | 1)", "a % 7", "a // -3", "a & b", "a | 5", "(a < 3) & (b > 2)", "a * 2147483647"),
    *(
        "a + 4294967296",
        "a - a // 3 * 3",
        "c0 + a",
        "a * n",
        "a % b",
        "a // n",
        "(a < 3) | (b > 2)",
        "a + far",
        "far * a",
        "far - side",
        "a // far",
        "far % b",
        "(a < far)",
        "(far == a.to(tl.int64))",
        "(n + far) * a",
        "(c0 + far) | 3",
        "a + big",
        "big - far",
        "(far < big)",
        "(far * 3 == 2147483648)",
        "(far < 3000000000)",
        "tl.umulhi(far, far) + far",
        "columns + tl.histogram(tl.ravel(a.to(tl.int8)), 16)",
        "far + top",
        "rows[:, None] * far",
    ),
    *("(a % 2 == 0) & (columns[None, :] < n)", "(a < b) & True", "(a > b) | 1", "a * 0.5"),
)
FLOATS = (
    *("a * 0.0", "a * -0.0", "a + 1e30 * 1e30", "a / 3", "a * scale", "scale - a", "(a < 0.25)"),
    *("a * 2147483648", "(a == float('nan'))", "tl.where(a > b, a, -0.0)", "a - 1", "a % 0.75"),
    *("(a == 1e-40)", "(a <= 1e39)", "(a > 1e-40)", "a + 1152921573326323713", "a * 1e-40"),
    *("a + 18446744073709551616", "(a > -18446744073709551616)", "(a == a * 0 + 1e-40)"),
    *("b * 0 + tl.sum(tl.trans(a) * 0.3, 0)[:, None]", "(a == 16777217)", "(b <= 3000000000)"),
    *(
        "b * 0 + tl.sum(tl.trans(b) * scale, 0)[:, None]",
        "b - tl.sum(scale - tl.trans(b), 0)[:, None]",
    ),
    *("a + a.to(tl.bfloat16)", "(a <= scale)", "a * True", "a * (b > 0)", "a.to(tl.bfloat16)"),
)
HEAD = """
import json, sys, torch, triton, triton.language as tl
from beamsearch.judge.sandbox import interpreter, short_operations
if sys.argv[1] == "long":
    short_operations.OPERATIONS.clear(), interpreter.PLAIN_CASTS.clear()
interpreter.prepare_interpreter()
kernels, told = {}, []
"""
KERNEL = """
@triton.jit
def kernel_{number}(x, y, out, n, big, scale, N: tl.constexpr, C: tl.constexpr):
    rows = tl.program_id(0) * 2 + tl.arange(0, 2)
    columns = tl.arange(0, N)
    place = rows[:, None] * N + columns[None, :]
    a, b = tl.load(x + place), tl.load(y + place)
    c0 = tl.program_id(0)
    c = tl.load(x + c0)
    top, side = tl.load(x + columns)[None, :], tl.load(y + rows * N)[:, None]
    far = place.to(tl.int64) * 3000000000 + 1
    tl.store(out + place, ({expression}).to(tl.float64))
kernels[{expression!r}] = kernel_{number}
"""
RUN = """
for dtype in (torch.int32, torch.int64, torch.int8, torch.uint8,
              torch.float32, torch.bfloat16, torch.float16):
    torch.manual_seed(0)
    x, y = ((torch.randn(8, 16) * 50).to(dtype) for _ in range(2))
    if dtype.is_floating_point:
        x.view(-1)[:4] = torch.tensor([float("inf"), float("-inf"), float("nan"), -0.0])
    else:
        y = y.abs() + 1
        x.view(-1)[:2] = torch.tensor([torch.iinfo(dtype).max, torch.iinfo(dtype).min])
    for expression, kernel in kernels.items():
        out = torch.full((8, 16), 7.0, dtype=torch.float64)
        interpreter.METER.begin(None)
        try:
            kernel[(4,)](x, y, out, 11, 3000000000, 0.3, N=16, C=3)
            result = out.numpy().tobytes().hex()
        except Exception as error:
            result = type(error).__name__
        told.append([str(dtype), expression, round(interpreter.METER.work, 6), result])
print(json.dumps(told))
"""


def outcomes(how: str, folder: Path) -> list[tuple[str, str, float, str]]:
    """dtype, expression, work, and bits or the error of each."""
    kernels = [
        KERNEL.format(number=number, expression=expression)
        for number, expression in enumerate((*ALL, *INTEGERS, *FLOATS))
    ]
    path = folder / f"{how}.py"
    path.write_text("".join((HEAD, *kernels, RUN)))
    done = subprocess.run(
        [sys.executable, path, how],
        env=os.environ | {"TRITON_INTERPRET": "1", "PYTHONPATH": PYTHONPATH},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return [tuple(item) for item in json.loads(done.stdout)]


@pytest.mark.timeout(400)
def test_short_forms_are_the_long_ones(tmp_path):
    long, short = (outcomes(how, tmp_path) for how in ("long", "short"))
    for one, other in zip(long, short, strict=True):
        assert one == other
    computed = [result for *_, result in long if len(result) > 100]
    assert len(computed) > 300 and len(set(computed)) > 200
