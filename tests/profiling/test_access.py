"""Kernels of which arithmetic says what they touch, traced at sizes no test machine could hold."""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kernel_profiling.estimate.traffic import AccessTrace, launch_traffic
from kernel_profiling.gpus import find_gpu

ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS = 1 << 16, 1 << 16
BYTES = ROWS * COLUMNS * 2
"""A bfloat16 matrix of 8 GiB."""

HEAD = """
import torch, triton
import triton.language as tl
"""
KERNELS = {
    "copy": """
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=index < n)
    tl.store(y_ptr + index, x, mask=index < n)

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y
""",
    "strided": """
@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + index, tl.load(x_ptr + index * 16))

def kernel_function(x):
    y = torch.empty(x.numel() // 16, dtype=x.dtype, device=x.device)
    kernel[(y.numel() // 1024,)](x, y, BLOCK=1024)
    return y
""",
    "masked": """
@triton.jit
def kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index, mask=tl.arange(0, BLOCK) < BLOCK // 4, other=0.0)
    tl.store(y_ptr + index, x)

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(x.numel() // 1024,)](x, y, BLOCK=1024)
    return y
""",
    "rows": """
@triton.jit
def kernel(x_ptr, v_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, columns, BLOCK):
        k = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * columns + k)
        v = tl.load(v_ptr + k)
        acc += x.to(tl.float32) * v.to(tl.float32)
    tl.store(y_ptr + row, tl.sum(acc, axis=0))

def kernel_function(x):
    v = torch.empty(x.shape[1], dtype=x.dtype, device=x.device)
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    kernel[(x.shape[0],)](x, v, y, x.shape[1], BLOCK=512)
    return y
""",
    "twice": """
@triton.jit
def kernel(x_ptr, y_ptr, columns: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = 0.0
    for start in tl.range(0, columns, BLOCK):
        x = tl.load(x_ptr + row * columns + start + tl.arange(0, BLOCK))
        total += tl.sum(x.to(tl.float32), axis=0)
    for start in tl.range(0, columns, BLOCK):
        index = row * columns + start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + index)
        tl.store(y_ptr + index, (x / total).to(y_ptr.dtype.element_ty))

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=1024)
    return y
""",
    "flattened": """
@triton.jit
def kernel(x_ptr, y_ptr, rows, columns: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    TURNS: tl.constexpr = columns // BLOCK
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    turn = 0
    for _ in range(0, rows // PROGRAMS * TURNS):
        x = tl.load(x_ptr + row.to(tl.int64) * columns + turn * BLOCK + tl.arange(0, BLOCK))
        total += x.to(tl.float32)
        done = turn == TURNS - 1
        if done:
            tl.store(y_ptr + row, tl.sum(total, axis=0))
            total = tl.zeros((BLOCK,), dtype=tl.float32)
        row += tl.where(done, PROGRAMS, 0)
        turn = tl.where(done, 0, turn + 1)

def kernel_function(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    kernel[(64,)](x, y, x.shape[0], x.shape[1], PROGRAMS=64, BLOCK=1024)
    return y
""",
    "flattened by its count": """
@triton.jit
def kernel(x_ptr, y_ptr, rows, columns: tl.constexpr, PROGRAMS: tl.constexpr, BLOCK: tl.constexpr):
    TURNS: tl.constexpr = columns // BLOCK
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for turn in range(0, rows // PROGRAMS * TURNS):
        row = tl.program_id(0) + turn // TURNS * PROGRAMS
        step = turn % TURNS
        x = tl.load(x_ptr + row.to(tl.int64) * columns + step * BLOCK + tl.arange(0, BLOCK))
        total += x.to(tl.float32)
        if step == TURNS - 1:
            tl.store(y_ptr + row, tl.sum(total, axis=0))
            total = tl.zeros((BLOCK,), dtype=tl.float32)

def kernel_function(x):
    y = torch.empty(x.shape[0], dtype=torch.float32, device=x.device)
    kernel[(64,)](x, y, x.shape[0], x.shape[1], PROGRAMS=64, BLOCK=1024)
    return y
""",
    "atomic": """
@triton.jit
def kernel(y_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(y_ptr + tl.arange(0, BLOCK), tl.full((BLOCK,), 1.0, dtype=tl.float32))

def kernel_function(x):
    y = torch.zeros(128, dtype=torch.float32, device=x.device)
    kernel[(5000,)](y, BLOCK=128)
    return y
""",
    "endless": """
@triton.jit
def kernel(y_ptr, BLOCK: tl.constexpr):
    going = 1
    while going > 0:
        tl.store(y_ptr + tl.arange(0, BLOCK), 1.0)
        going += 1

def kernel_function(x):
    y = torch.zeros(128, dtype=torch.float32, device=x.device)
    kernel[(5000,)](y, BLOCK=128)
    return y
""",
    "broken": """
@triton.jit
def kernel(y_ptr, BLOCK: tl.constexpr):
    tl.store(y_ptr + nowhere, 1.0)

def kernel_function(x):
    kernel[(1,)](x, BLOCK=128)
    return x
""",
    "tuned": """
@triton.autotune(
    configs=[triton.Config({"BLOCK": block}) for block in (256, 1024)], key=["n"],
)
@triton.jit
def kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + index, tl.load(x_ptr + index))

def kernel_function(x):
    y = torch.empty_like(x)
    kernel[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
""",
    "descriptor": """
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def kernel(x, y, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    y.store([row, 0], x.load([row, 0]))

def kernel_function(x):
    y = torch.empty_like(x)
    a, b = (TensorDescriptor.from_tensor(t, [64, 64]) for t in (x, y))
    kernel[(x.shape[0] // 64,)](a, b, BLOCK=64)
    return y
""",
}
SCRIPT = """
import json, sys
from pathlib import Path
import torch
from kernel_profiling.estimate.access import trace_call
from kernel_profiling.gpus import find_gpu
from tests.profiling.kernels import load_source

folder, rows, columns = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
found = {}
for name, source in json.load(sys.stdin).items():
    x = torch.empty((rows, columns), dtype=torch.bfloat16, device="meta")
    function = load_source(folder, source).kernel_function
    for key in (name, name + " again"):
        found[key] = trace_call(lambda: function(x), find_gpu("h200")).model_dump(mode="json")
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> dict[str, AccessTrace]:
    """Every kernel traced twice in one process of the interpreter."""
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            SCRIPT,
            str(tmp_path_factory.mktemp("kernels")),
            str(ROWS),
            str(COLUMNS),
        ],
        input=json.dumps({name: HEAD + source for name, source in KERNELS.items()}),
        env={**os.environ, "TRITON_INTERPRET": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    return {
        name: AccessTrace.model_validate(trace) for name, trace in json.loads(done.stdout).items()
    }


def traffic(trace: AccessTrace) -> dict[str, float]:
    """Bytes that the only launch moves at every level, with half the warps an SM can hold."""
    (launch,) = trace.launches
    return launch_traffic(launch, find_gpu("h200"), blocks_per_sm=8)


def test_a_trace_is_the_same_every_time(traces: dict[str, AccessTrace]) -> None:
    for name in KERNELS:
        assert traces[name] == traces[f"{name} again"], name


def test_copy_moves_every_byte_twice(traces: dict[str, AccessTrace]) -> None:
    trace = traces["copy"]
    assert trace.failed is None
    moved = traffic(trace)
    for level in ("registers", "l2", "dram"):
        assert moved[level] == pytest.approx(2 * BYTES, rel=1e-6), level
    (launch,) = trace.launches
    (load,) = [line for line in launch.lines if line.kind == "load"]
    by_lane = {(p.lane_elements, p.vector): (p.sectors, p.lines) for p in load.patterns}
    assert by_lane[1, 1] == (2, 1)
    assert by_lane[8, 8] == (16, 4)
    # One scalar request of lanes that own eight elements each touches all their sectors.
    assert by_lane[8, 1] == (16, 4)


def test_strided_load_takes_whole_sectors(traces: dict[str, AccessTrace]) -> None:
    trace = traces["strided"]
    written = BYTES / 16
    assert traffic(trace)["dram"] == pytest.approx(BYTES + written, rel=1e-6)
    assert traffic(trace)["registers"] == pytest.approx(2 * written, rel=1e-6)
    (load,) = [line for line in trace.launches[0].lines if line.kind == "load"]
    assert {p.sectors for p in load.patterns if p.vector == 1} == {32}


def test_masked_elements_cost_nothing(traces: dict[str, AccessTrace]) -> None:
    trace = traces["masked"]
    (load,) = [line for line in trace.launches[0].lines if line.kind == "load"]
    assert load.active == 0.25
    assert traffic(trace)["dram"] == pytest.approx(BYTES * 1.25, rel=1e-6)


def test_sampled_loops_count_in_full_and_shared_data_once(traces: dict[str, AccessTrace]) -> None:
    trace = traces["rows"]
    (launch,) = trace.launches
    loads = [line for line in launch.lines if line.kind == "load"]
    assert [line.executions for line in loads] == pytest.approx([COLUMNS / 512] * 2)
    assert list(launch.loops.values()) == pytest.approx([COLUMNS / 512])
    # All programs read the same vector: it comes from memory once, and from the L2 every time.
    assert traffic(trace)["dram"] == pytest.approx(BYTES, rel=1e-3)
    assert traffic(trace)["l2"] == pytest.approx(2 * BYTES, rel=1e-3)


def test_second_pass_hits_where_what_lies_between_fits(traces: dict[str, AccessTrace]) -> None:
    (launch,) = traces["twice"].launches
    gpu = find_gpu("h200")
    row = COLUMNS * 2
    # One block an SM: a row of 128 KiB fits the L1 with one block, the L2 with more.
    alone = launch_traffic(launch, gpu, blocks_per_sm=1)
    assert alone["l2"] == pytest.approx(2 * BYTES, rel=0.01)
    assert alone["dram"] == pytest.approx(2 * BYTES, rel=0.01)
    crowded = launch_traffic(launch, gpu, blocks_per_sm=16)
    assert 16 * gpu.sms * row > gpu.l2_bytes
    assert crowded["l2"] == pytest.approx(3 * BYTES, rel=0.01)
    assert crowded["dram"] == pytest.approx(3 * BYTES, rel=0.01)


def test_atomics_on_one_place(traces: dict[str, AccessTrace]) -> None:
    trace = traces["atomic"]
    (line,) = trace.launches[0].lines
    assert line.kind == "atomic"
    assert traffic(trace)["l2"] == pytest.approx(5000 * 512)
    assert traffic(trace)["dram"] == pytest.approx(512)


def test_an_endless_program_is_cut_short(traces: dict[str, AccessTrace]) -> None:
    trace = traces["endless"]
    assert trace.failed is None
    assert trace.launches[0].moved is None


def test_nothing_is_said_of_stores_that_hang_on_earlier_turns(
    traces: dict[str, AccessTrace],
) -> None:
    for name in ("flattened", "flattened by its count"):
        trace = traces[name]
        assert trace.failed is None
        assert trace.launches[0].moved is None, name


def test_what_fails_is_told(traces: dict[str, AccessTrace]) -> None:
    assert "nowhere" in (traces["broken"].failed or "")


def test_every_configuration_of_an_autotuner_is_traced(traces: dict[str, AccessTrace]) -> None:
    launches = traces["tuned"].launches
    assert [launch.grid[0] for launch in launches] == [
        ROWS * COLUMNS // 256,
        ROWS * COLUMNS // 1024,
    ]
    assert all(launch.config for launch in launches)


def test_tensor_descriptors_are_followed(traces: dict[str, AccessTrace]) -> None:
    trace = traces["descriptor"]
    assert trace.failed is None
    assert traffic(trace)["dram"] == pytest.approx(2 * ROWS * 64 * 2, rel=1e-6)


def test_without_the_interpreter_it_says_so() -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            textwrap.dedent(
                """
                from kernel_profiling.estimate.access import trace_call
                from kernel_profiling.gpus import find_gpu
                print(trace_call(lambda: None, find_gpu("h200")).failed)
                """
            ),
        ],
        env={k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert "TRITON_INTERPRET" in done.stdout, done.stderr
