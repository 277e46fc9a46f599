"""Real kernels compiled for a target with no GPU: the facts the compiler knows."""

import textwrap
from pathlib import Path

import pytest
import torch

from kernel_profiling.errors import CompileFailed
from kernel_profiling.estimate.time_model import region_turns, work_of
from kernel_profiling.estimate.traffic import LaunchTrace, LineAccess
from kernel_profiling.findings.findings import find
from kernel_profiling.gpus import find_gpu
from kernel_profiling.profile import FindingKind, Profile
from tests.profiling.kernels import load_source
from tools.compiled import compiled as compile_meta

N = 1 << 20

COPY = """
import torch, triton
import triton.language as tl

@triton.jit
def copy_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + index,
        mask=index < n,
    )
    tl.store(y_ptr + index, x, mask=index < n)

def kernel_function(x):
    y = torch.empty_like(x)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    copy_kernel[grid](x, y, x.numel(), BLOCK=1024, num_warps=4)
    return y
"""


def compiled(folder: Path, source: str, *arguments: object, gpu: str = "h200") -> Profile:
    function = load_source(folder, source).kernel_function
    return compile_meta(lambda: function(*arguments), find_gpu(gpu))


def meta(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def test_streaming_kernel(tmp_path: Path) -> None:
    profile = compiled(tmp_path, COPY, meta(N))
    (launch,) = profile.launches
    assert profile.source == "compiler"
    assert (launch.name, launch.grid, launch.threads) == ("copy_kernel", (1024, 1, 1), 128)
    assert (launch.load_bits, launch.store_bits) == (128, 128)
    assert (launch.spill_bytes, launch.shared_bytes, launch.matrix_instructions) == (0, 0, 0)
    assert launch.occupancy == 1.0
    assert launch.registers is not None
    assert launch.registers < 32
    assert sum(launch.instruction_mix.values()) == sum(
        n for r in launch.regions for n in r.lines.values()
    )
    (load,) = [line for line in launch.lines if line.load_bits]
    assert load.text.strip() == "x = tl.load("
    (access,) = [a for r in launch.regions for a in r.accesses if a.kind == "load"]
    assert (access.line, access.lane_elements) == (load.line, 8)


def test_unaligned_shape_narrows_loads(tmp_path: Path) -> None:
    (launch,) = compiled(tmp_path, COPY, meta(N - 1)).launches
    assert launch.load_bits == 16


@pytest.mark.parametrize("gpu", ["a100", "rtx4090", "b200", "rtx5090"])
def test_other_targets(tmp_path: Path, gpu: str) -> None:
    (launch,) = compiled(tmp_path, COPY, meta(N), gpu=gpu).launches
    assert launch.load_bits == 128


MATMUL = """
import torch, triton
import triton.language as tl

@triton.jit
def matmul_kernel(a_ptr, b_ptr, c_ptr, K, B: tl.constexpr, BK: tl.constexpr):
    rows, columns, k = tl.arange(0, B), tl.arange(0, B), tl.arange(0, BK)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * B + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * B + columns[None, :], acc)

def kernel_function(a, b, stages=3, bk=64):
    c = torch.empty((128, 128), dtype=torch.float32, device=a.device)
    matmul_kernel[(1,)](a, b, c, a.shape[1], B=128, BK=bk, num_warps=8, num_stages=stages)
    return c
"""


def test_matrix_instructions_and_shared_memory(tmp_path: Path) -> None:
    (launch,) = compiled(tmp_path, MATMUL, meta(128, 4096), meta(4096, 128)).launches
    assert launch.matrix_instructions
    assert launch.shared_bytes
    assert launch.shared_bytes > 64 * 1024
    assert any(region.parent == 0 for region in launch.regions)


def test_too_much_shared_memory_is_said(tmp_path: Path) -> None:
    with pytest.raises(CompileFailed, match=r"shared memory a block.*H200.*fewer stages"):
        compiled(tmp_path, MATMUL, meta(128, 4096), meta(4096, 128), 8, 128)


def test_spills_are_seen(tmp_path: Path) -> None:
    source = COPY.replace(
        "tl.store(y_ptr + index, x, mask", "tl.store(y_ptr + index, x - tl.max(x, axis=0), mask"
    ).replace("BLOCK=1024, num_warps=4", "BLOCK=16384, num_warps=4, maxnreg=48")
    (launch,) = compiled(tmp_path, source, meta(N, dtype=torch.float32)).launches
    assert launch.spill_bytes
    assert sum(line.spill_instructions or 0 for line in launch.lines) > 10


def test_fingerprint_is_of_the_code_not_of_its_text(tmp_path: Path) -> None:
    def fingerprint(source: str) -> str | None:
        return compiled(tmp_path, source, meta(N)).launches[0].fingerprint

    first = fingerprint(COPY)
    renamed = "# a comment\n\n" + COPY.replace("copy_kernel", "other").replace("index", "where")
    assert fingerprint(renamed) == first
    assert fingerprint(COPY.replace("BLOCK=1024", "BLOCK=2048")) != first
    assert (
        fingerprint(COPY.replace("tl.store(y_ptr + index, x,", "tl.store(y_ptr + index, x + x,"))
        != first
    )


DESCRIPTOR = """
import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def copy_kernel(x, y, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    y.store([row, 0], x.load([row, 0]))

def kernel_function(x):
    y = torch.empty_like(x)
    a, b = (TensorDescriptor.from_tensor(t, [64, 64]) for t in (x, y))
    copy_kernel[(x.shape[0] // 64,)](a, b, BLOCK=64)
    return y
"""


def test_tensor_descriptors_compile_on_meta(tmp_path: Path) -> None:
    (launch,) = compiled(tmp_path, DESCRIPTOR, meta(1024, 64)).launches
    assert launch.instruction_mix["global_load"] >= 1


SUMS = """
import torch, triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

@triton.jit
def sum_kernel(x, y_ptr, turns):
    first = tl.program_id(0) * turns
    total = tl.zeros([64], tl.float32)
    for i in tl.range(0, turns, num_stages=4):
        total += tl.sum(x.load([(first + i) * 64, 0]).to(tl.float32), 1)
    tl.store(y_ptr + tl.program_id(0) * 64 + tl.arange(0, 64), total)

def kernel_function(x):
    y = torch.empty(132 * 64, dtype=torch.float32, device=x.device)
    sum_kernel[(132,)](TensorDescriptor.from_tensor(x, [64, 64]), y, x.shape[0] // 64 // 132)
    return y
"""


def test_a_bulk_copy_moves_a_block_and_not_a_lane(tmp_path: Path) -> None:
    # Given a loop of 100 turns, in each of which one thread asks for a block of 64 x 64 elements
    (launch,) = compiled(tmp_path, SUMS, meta(100 * 132 * 64, 64)).launches
    bulk = [a for region in launch.regions for a in region.accesses if a.bulk]
    assert len(bulk) >= 2, "ahead of the loop, and in it"
    seen = LineAccess(
        line=bulk[0].line,
        kind="load",
        element_bytes=2,
        executions=100,
        elements=100 * 4096,
        active=1,
        patterns=[],
    )
    trace = LaunchTrace(name=launch.name, grid=launch.grid, lines=[seen])

    # Then the loop is known to run that often, not once for each lane's part
    assert 96 <= max(region_turns(launch.regions, trace, launch.threads)) <= 100
    sectors = 132 * 100 * 4096 * 2 / 32
    assert work_of(launch, trace, find_gpu("h200")).l1_sectors == pytest.approx(sectors, rel=0.05)


def test_masked_loads_are_blamed_on_their_own_lines(tmp_path: Path) -> None:
    # Given loads whose masked-off lanes are filled one by one before, in inline assembly
    source = COPY.replace("mask=index < n,\n", "mask=index < n,\n        other=1.0,\n")
    (launch,) = compiled(tmp_path, source, meta(N, dtype=torch.float32)).launches

    lines = {line.line: line for line in launch.lines}
    (load,) = [n for n, text in enumerate(source.splitlines(), 1) if "tl.load(" in text]
    (store,) = [n for n, text in enumerate(source.splitlines(), 1) if "tl.store(" in text]
    assert {n for n, line in lines.items() if line.load_bits} == {load}
    assert {n for n, line in lines.items() if line.store_bits} == {store}


def test_library_work_is_named() -> None:
    profile = Profile(source="compiler", gpu="H200 SXM", launches=[], torch_operations=["mm"])
    (finding,) = find(profile, None, None)
    assert finding.kind == FindingKind.LIBRARY_TIME
    assert finding.title.endswith("not profiled here: mm")


def test_loops_are_told_from_the_code_around_them(tmp_path: Path) -> None:
    source = textwrap.dedent(
        """
        import torch, triton
        import triton.language as tl

        @triton.jit
        def sum_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
            acc = tl.zeros((BLOCK,), dtype=tl.float32)
            for start in range(0, n, BLOCK):
                acc += tl.load(x_ptr + start + tl.arange(0, BLOCK))
            tl.store(y_ptr, tl.sum(acc, axis=0))

        def kernel_function(x):
            y = torch.empty((1,), dtype=torch.float32, device=x.device)
            sum_kernel[(1,)](x, y, x.numel(), BLOCK=1024)
            return y
        """
    )
    (launch,) = compiled(tmp_path, source, meta(N, dtype=torch.float32)).launches
    loops = [region for region in launch.regions if region.parent is not None]
    assert any(access.kind == "load" for loop in loops for access in loop.accesses)
    assert all(access.kind == "load" for loop in loops for access in loop.accesses)
    assert [a.kind for a in launch.regions[0].accesses].count("store") == 1
    assert max(loop.waits for loop in loops) >= 1
