"""Rewrites on kernels in styles of their own: applied or refused, never wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from beamsearch.proposer.playbook.rewrites import contraction, launch, rereads, rows
from beamsearch.proposer.playbook.rewrites.compositions import (
    AFTER,
    BEFORE,
    SMALL,
    STRUCTURES,
    simple,
)
from beamsearch.proposer.playbook.rewrites.hints import Hints, Shape

ALL = tuple(dict.fromkeys((*BEFORE, *sum(STRUCTURES, ()), *AFTER, *SMALL)))
HEAD = """
import torch
import triton
import triton.language as tl
"""

SCALE = """
@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    tl.store(y_ptr + at, x * factor + 1.0, mask=at < n)
"""

AUTOTUNED = (
    HEAD
    + """
@triton.autotune(configs=[triton.Config({"BLOCK": 64}, num_warps=4, num_stages=2)], key=["n"])"""
    + SCALE
    + """

def kernel_function(x):
    y = torch.empty_like(x)
    n = x.numel()
    scale_kernel[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 0.5)
    return y
"""
)

TUNED_BY_A_CALL = (
    HEAD
    + SCALE
    + """
configs = [triton.Config({"BLOCK": 64}, num_warps=4)]
tuned = triton.autotune(configs=configs, key=["n"])(scale_kernel)


def kernel_function(x):
    y = torch.empty_like(x)
    n = x.numel()
    if n > 100:
        tuned[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, 0.5)
    else:
        scale_kernel[(triton.cdiv(n, 32),)](x, y, n, 0.5, BLOCK=32)
    return y
"""
)

HEURISTIC = (
    HEAD
    + """
@triton.heuristics({"EVEN": lambda args: args["n"] % 64 == 0})
@triton.jit
def shift_kernel(x_ptr, y_ptr, n, width, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    column = at % width
    x = tl.load(x_ptr + at, mask=at < n, other=0.0)
    left = tl.load(x_ptr + at - 1, mask=(at < n) & (column > 0), other=0.0)
    if EVEN:
        tl.store(y_ptr + at, x + left)
    else:
        tl.store(y_ptr + at, x + left, mask=at < n)


def kernel_function(x):
    y = torch.empty_like(x)
    n = x.numel()
    shift_kernel[(triton.cdiv(n, 64),)](x, y, n, x.shape[-1], BLOCK=64)
    return y
"""
)

HELPER = (
    HEAD
    + """
@triton.jit
def clamp(value, low, high):
    return tl.minimum(tl.maximum(value, low), high)


@triton.jit
def neighbours_kernel(x_ptr, y_ptr, rows, columns, reach, weight, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < rows * columns
    column = index % columns
    row = index // columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for step in range(3):
        near = clamp(column + (step - 1) * reach, 0, columns - 1)
        total += tl.load(x_ptr + row.to(tl.int64) * columns + near, mask=inside, other=0.0) * weight
    tl.store(y_ptr + index, total, mask=inside)


def kernel_function(x):
    y = torch.empty_like(x)
    rows, columns = x.numel() // x.shape[-1], x.shape[-1]
    neighbours_kernel[(triton.cdiv(rows * columns, 32),)](x, y, rows, columns, 2, 0.25, BLOCK=32)
    return y
"""
)

TWO_DIMENSIONAL = (
    HEAD
    + """
BLOCK_M = 16
BLOCK_N = 16


@triton.jit
def transpose_kernel(x_ptr, y_ptr, M, N, stride_m, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr):
    m = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)[:, None]
    n = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)[None, :]
    inside = (m < M) & (n < N)
    x = tl.load(x_ptr + m * stride_m.to(tl.int64) + n, mask=inside, other=0.0)
    tl.store(y_ptr + n * M + m, x, mask=inside)


def kernel_function(x):
    x = x.reshape(-1, x.shape[-1])
    M, N = x.shape
    y = torch.empty((N, M), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(M, BLOCK_M), triton.cdiv(N, BLOCK_N))
    transpose_kernel[grid](x, y, M, N, x.stride(0), BLOCK_M=BLOCK_M, BLOCK_N=BLOCK_N)
    return y
"""
)

IN_PLACE = (
    HEAD
    + """
@triton.jit
def smooth_kernel(x_ptr, rows, columns, BLOCK: tl.constexpr, WINDOW: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < rows * columns
    column = index % columns
    row = index // columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for k in range(WINDOW):
        total += tl.load(x_ptr + row * columns + column, mask=inside, other=0.0)
    tl.store(x_ptr + index, total, mask=inside)


def kernel_function(x):
    x = x.clone()
    rows, columns = x.numel() // x.shape[-1], x.shape[-1]
    smooth_kernel[(triton.cdiv(rows * columns, 64),)](x, rows, columns, BLOCK=64, WINDOW=3)
    return x
"""
)

UPSAMPLE = (
    HEAD
    + """
@triton.jit
def spread_kernel(
    x_ptr, w_ptr, y_ptr, length, out_length, step, TAPS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(1)
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for tap in range(TAPS):
        source = at - tap
        ok = (source >= 0) & (source % step == 0) & (source // step < length) & (at < out_length)
        x = tl.load(x_ptr + row * length + source // step, mask=ok, other=0.0)
        total += x * tl.load(w_ptr + tap)
    tl.store(y_ptr + row * out_length + at, total, mask=at < out_length)


def kernel_function(x):
    x = x.reshape(-1, x.shape[-1])
    rows, length = x.shape
    taps = torch.tensor([0.5, 1.0, 0.25], device=x.device)
    out_length = (length - 1) * 2 + 3
    y = torch.empty((rows, out_length), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_length, 32), rows)
    spread_kernel[grid](x, taps, y, length, out_length, 2, TAPS=3, BLOCK=32)
    return y
"""
)

PROJECTION = (
    HEAD
    + """
@triton.jit
def project_kernel(x_ptr, w_ptr, b_ptr, y_ptr, C, O, P, BLOCK: tl.constexpr):
    pid = tl.program_id(1)
    o = pid % O
    n = pid // O
    p = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for c in range(C):
        x = tl.load(x_ptr + (n * C + c) * P + p, mask=p < P, other=0.0)
        w = tl.load(w_ptr + o * C + c)
        acc += x * w
    result = acc + tl.load(b_ptr + o)
    tl.store(y_ptr + pid * P + p, result, mask=p < P)


def kernel_function(x):
    x = x.reshape(2, -1, 21)
    N, C, P = x.shape
    O = 19
    w = (torch.arange(O * C, device=x.device) % 7 - 3).to(x.dtype).reshape(O, C)
    b = torch.arange(O, device=x.device).to(x.dtype)
    y = torch.empty((N, O, P), dtype=x.dtype, device=x.device)
    project_kernel[(triton.cdiv(P, 64), N * O)](x, w, b, y, C, O, P, BLOCK=64)
    return y
"""
)

TWO_PASS = (
    HEAD
    + """
@triton.jit
def centre_kernel(x_ptr, y_ptr, length, columns, BLOCK: tl.constexpr):
    lane = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    ok = lane < columns
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for i in range(length):
        total += tl.load(x_ptr + i * columns + lane, mask=ok, other=0.0) + 1.0
    mean = total / length
    for j in range(length):
        value = tl.load(x_ptr + j * columns + lane, mask=ok, other=0.0)
        tl.store(y_ptr + j * columns + lane, value - mean, mask=ok)


def kernel_function(x):
    x = x.reshape(-1, x.shape[-1])
    y = torch.empty_like(x)
    centre_kernel[(triton.cdiv(x.shape[1], 16),)](x, y, x.shape[0], x.shape[1], BLOCK=16)
    return y
"""
)

KERNELS = {
    "autotuned": AUTOTUNED,
    "tuned by a call": TUNED_BY_A_CALL,
    "heuristic": HEURISTIC,
    "helper": HELPER,
    "two-dimensional": TWO_DIMENSIONAL,
    "in place": IN_PLACE,
    "upsample": UPSAMPLE,
    "projection": PROJECTION,
    "two passes": TWO_PASS,
}
INPUT = (6, 7, 21)

RUNNER = """
import importlib.util, json, os, sys, tempfile
from types import SimpleNamespace
import torch
import triton
from beamsearch.judge.sandbox.interpreter import prepare_interpreter
prepare_interpreter()
torch.cuda.current_device = lambda: 0  # as the judge has it for candidates
torch.cuda.get_device_properties = lambda device: SimpleNamespace(multi_processor_count=3)
torch.manual_seed(0)
x = torch.randn(*json.loads(sys.argv[1]))
def call(source):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kernel.py")
        open(path, "w").write(source)
        spec = importlib.util.spec_from_file_location("kernel", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.kernel_function(x.clone())
results = []
expected = {}
for original, source in json.load(sys.stdin):
    if original not in expected:
        expected[original] = call(original)
    try:
        torch.testing.assert_close(call(source), expected[original], rtol=1e-4, atol=1e-4)
        results.append("")
    except BaseException as error:
        results.append(f"{type(error).__name__}: {error}"[:2000])
print(json.dumps(results))
"""


def run_all(pairs: list[tuple[str, str]]) -> list[str]:
    """Each rewritten source against its original in the interpreter: empty where equal."""
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, json.dumps(INPUT)],
        input=json.dumps(pairs),
        capture_output=True,
        text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("style", KERNELS)
def test_every_rewrite_and_composition_keeps_the_result(style: str) -> None:
    source = KERNELS[style]
    hints = Hints({"x": Shape(INPUT)})
    found = {text: move for rewrite in ALL for move, text in rewrite.apply(source, hints)}
    found |= {p.source: "; ".join(p.moves) for p in simple(source, hints) if p.tier == 0}
    assert source not in found
    results = run_all([(source, text) for text in found])
    wrong = {move: r for move, r in zip(found.values(), results, strict=True) if r}
    assert not wrong


@pytest.mark.parametrize(
    ("style", "rewrite"),
    [
        ("helper", rows.ROWS),
        ("helper", rows.STRIPS),
        ("projection", contraction.REWRITE),
        ("two passes", rereads.REWRITE),
        ("autotuned", launch.REWRITE),
    ],
)
def test_rewrites_reach_kernels_they_were_not_written_for(style: str, rewrite: object) -> None:
    assert rewrite.apply(KERNELS[style], Hints({"x": Shape(INPUT)}))  # type: ignore[attr-defined]


def test_a_kernel_that_reads_what_it_writes_keeps_its_rows_apart() -> None:
    assert rows.STRIPS.apply(IN_PLACE, Hints({"x": Shape(INPUT)})) == []


def test_what_a_tuner_launches_is_no_plain_launch() -> None:
    hints = Hints({"x": Shape(INPUT)})
    assert launch.REWRITE.apply(TUNED_BY_A_CALL, hints) == launch.settings_of(TUNED_BY_A_CALL) == []
    plain = TUNED_BY_A_CALL.replace("(scale_kernel)", "(another)")
    assert launch.REWRITE.apply(plain, hints)


def test_a_grid_that_is_not_written_axis_by_axis_keeps_its_block() -> None:
    starred = PROJECTION.replace(
        "[(triton.cdiv(P, 64), N * O)]", "[(*(triton.cdiv(P, 64), N * O),)]"
    )
    assert starred != PROJECTION
    moves = [move for move, _ in launch.REWRITE.apply(starred, Hints())]
    assert moves and not any("BLOCK" in move for move in moves)
