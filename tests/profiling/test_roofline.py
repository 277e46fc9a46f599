"""Floors from figures, and the streaming kernel that measures them, compiled for real targets."""

from __future__ import annotations

import pytest

from kernel_profiling.floor.roofline import (
    Ceilings,
    corrected_floor,
    make_floor,
    matrix_rate,
    measure_ceilings,
)
from kernel_profiling.gpus import find_gpu

COPY = Ceilings(dtype="bfloat16", bandwidth_gb_s=4297, matrix_tflops=718)


def test_floor_of_a_streaming_problem_is_its_bytes_over_the_measured_bandwidth() -> None:
    floor = make_floor(536_870_912, 532_684_800, 4_800_000_000, "bfloat16", find_gpu("h200"), COPY)

    assert floor.time_ms == floor.memory_ms == pytest.approx(0.249, abs=0.001)
    assert (floor.bandwidth_source, floor.flops_rate_tflop_s) == ("measured", 718)


def test_floor_of_a_product_is_its_flops_over_the_rate() -> None:
    n = 8192
    floor = make_floor(2 * n * n * 2, n * n * 2, 2 * n**3, "bfloat16", find_gpu("h200"), None)

    assert floor.bandwidth_source == "datasheet"
    assert floor.time_ms == floor.compute_ms == pytest.approx(2 * n**3 / 989e9, rel=0.01)
    assert floor.bandwidth_gb_s == 4800


def test_a_measurement_above_the_datasheet_is_cut_to_it() -> None:
    h200 = find_gpu("h200")
    wild = COPY.model_copy(update={"bandwidth_gb_s": 9000.0, "matrix_tflops": 5000.0})

    floor = make_floor(1 << 30, 0, 1 << 30, "bfloat16", h200, wild)
    assert (floor.bandwidth_gb_s, floor.flops_rate_tflop_s) == (4800, h200.tflops["bfloat16"])
    estimated = h200.model_copy(update={"estimated": True})
    assert make_floor(1 << 30, 0, 0, "bfloat16", estimated, wild).bandwidth_gb_s == 9000


def test_a_rate_measured_for_another_dtype_is_not_used() -> None:
    h200 = find_gpu("h200")

    floor = make_floor(1 << 30, 0, 1 << 30, "float32", h200, COPY)
    assert floor.flops_rate_tflop_s == matrix_rate(h200, "float32") < COPY.matrix_tflops
    assert matrix_rate(h200, "float32") == pytest.approx(h200.tflops["tf32"] / 3)
    assert matrix_rate(h200, "float64") == h200.tflops["float64"]
    assert matrix_rate(h200, "int8") == h200.tflops["float32"]


@pytest.mark.parametrize("reads", [0, 1, 4, 8])
def test_the_streaming_kernel_compiles_to_wide_accesses_at_every_mix(reads: int) -> None:
    triton = pytest.importorskip("triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from kernel_profiling.floor.streaming import MAGIC, PARTS, VARIANTS, stream_kernel

    chunk, warps, evict, _ = VARIANTS[1]
    constants = {
        "READS": reads,
        "WRITES": PARTS - reads,
        "CHUNK": chunk,
        "EVICT": evict,
        "MAGIC": MAGIC,
    }
    source = ASTSource(
        stream_kernel,
        signature={"x_ptr": "*i32", "y_ptr": "*i32", "groups": "i32"}
        | dict.fromkeys(constants, "constexpr"),
        constexprs=constants,
        attrs={(0,): [["tt.divisibility", 16]], (1,): [["tt.divisibility", 16]]},
    )
    compiled = triton.compile(
        source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps}
    )

    code = compiled.asm["ptx"].splitlines()
    loads = [line for line in code if "ld.global" in line]
    stores = [line for line in code if "st.global" in line]
    # A lane has 8 of a chunk's 1024 elements: two accesses of 128 bits.
    assert len(loads) == 2 * reads and all(".v4." in line for line in loads)
    if reads < PARTS:
        assert len(stores) == 2 * (PARTS - reads) and all(".v4." in line for line in stores)
    else:
        assert stores and all("@" in line for line in stores), "kept alive, never executed"


@pytest.mark.gpu
@pytest.mark.parametrize("read_share", [0.0, 0.5, 1.0])
def test_ceilings_are_near_the_datasheet(read_share: float) -> None:
    import torch

    if not torch.cuda.is_available():
        pytest.skip("needs a GPU")
    from kernel_profiling.gpus import device_gpu

    gpu = device_gpu()
    seen = measure_ceilings("bfloat16", read_share)

    assert 0.6 * gpu.bandwidth_gb_s < seen.bandwidth_gb_s < 1.02 * gpu.bandwidth_gb_s
    assert 0.4 * gpu.tflops["bfloat16"] < seen.matrix_tflops < 1.02 * gpu.tflops["bfloat16"]
    assert seen.costs is not None
    print(seen)
    assert 1.2 * gpu.bandwidth_gb_s < seen.costs.l2_gb_s < 10 * gpu.bandwidth_gb_s
    assert 0.2 < seen.costs.barrier_us < 20
    assert 0.2 < seen.costs.launch_us < 20


def test_a_time_below_the_floor_lowers_it_and_says_so() -> None:
    h200 = find_gpu("h200")
    measured = COPY.model_copy(update={"dtype": "tf32", "matrix_tflops": 400.0})
    floor = make_floor(1 << 20, 1 << 20, 400 * 10**9, "tf32", h200, measured)
    assert floor.compute_ms == pytest.approx(1.0)
    assert corrected_floor(floor, 1 << 20, h200, 1.0) == floor

    # A rate that only this GPU's measurement denied is one it reaches.
    faster = corrected_floor(floor, 1 << 20, h200, 0.9)
    assert faster.time_ms == pytest.approx(0.9)
    assert faster.flops == floor.flops and "0.9 ms, below the floor of 1 ms" in faster.corrected
    # Beyond the datasheet's 494.7 TFLOP/s the FLOPs prove nothing, and bytes alone are left.
    wrong = corrected_floor(floor, 1 << 20, h200, 0.5)
    assert wrong.time_ms == wrong.memory_ms == floor.memory_ms
    assert "400 GFLOP are beyond the datasheet" in wrong.corrected and "tf32" in wrong.corrected


@pytest.mark.parametrize(
    ("time_ms", "bandwidth", "least"),
    [
        (2.4e9 / 4.5e9, 4500, 2_400_000_000),  # faster than was measured
        (0.495, None, 2_400_000_000 - (60 << 20)),  # 4848 GB/s: outputs stayed in the L2
        (0.3, 4800, 1_200_000_000 - (60 << 20)),  # not all inputs were read
    ],
)
def test_bytes_that_cannot_have_been_moved_do_not_count(
    time_ms: float, bandwidth: float | None, least: int
) -> None:
    h200, half = find_gpu("h200"), 1_200_000_000
    floor = make_floor(half, half, 0, "bfloat16", h200, COPY)

    lower = corrected_floor(floor, half, h200, time_ms)
    assert lower.least_bytes == least and lower.time_ms <= time_ms * (1 + 1e-9)
    assert lower.bandwidth_gb_s == pytest.approx(bandwidth or least / time_ms / 1e6)
    assert lower.corrected
