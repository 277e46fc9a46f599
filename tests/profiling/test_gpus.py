"""GPU facts are found by key and by the driver's exact name; unknown parts are estimated."""

from types import SimpleNamespace

import pytest

from kernel_profiling.compiler.occupancy import blocks_per_sm, occupancy
from kernel_profiling.gpus import GPUS, UnknownGpu, estimate_gpu, find_gpu


@pytest.mark.parametrize(
    ("name", "key"),
    [
        ("h200", "h200"),
        ("H200", "h200"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 3080", "rtx3080"),
    ],
)
def test_found_by_key_and_by_device_name(name: str, key: str) -> None:
    assert find_gpu(name).key == key


def test_unknown_name_lists_the_known() -> None:
    with pytest.raises(UnknownGpu, match=r"did you mean h200.*a100, .*rtx5090"):
        find_gpu("h2000")


def test_facts_hang_together() -> None:
    for gpu in GPUS.values():
        # Two float32 operations a clock of each of 64 or 128 lanes an SM, within 10%.
        peak = 2 * 128 * gpu.sms * gpu.boost_clock_mhz / 1e6
        assert 0.45 < gpu.tflops["float32"] / peak < 1.1, gpu.key
        assert gpu.tflops["float16"] == gpu.tflops["bfloat16"] >= gpu.tflops["tf32"], gpu.key
        assert not gpu.estimated


def test_unknown_device_is_estimated_from_the_driver() -> None:
    told = SimpleNamespace(
        name="NVIDIA H20",
        major=9,
        minor=0,
        multi_processor_count=78,
        max_threads_per_multi_processor=2048,
        total_memory=96 * 10**9,
        memory_clock_rate=2619000,
        memory_bus_width=6144,
    )
    gpu = estimate_gpu(told)
    assert gpu.estimated
    assert (gpu.sms, gpu.capability, gpu.memory_bytes) == (78, 90, 96 * 10**9)
    assert gpu.bandwidth_gb_s == pytest.approx(4022.8, rel=1e-3)
    assert gpu.max_blocks_per_sm == 32


def test_occupancy_as_the_calculator_has_it() -> None:
    gpu = find_gpu("h200")
    assert occupancy(gpu, 128, 32, 0) == (1.0, "warps")
    assert occupancy(gpu, 128, 168, 0) == (0.1875, "registers")
    assert occupancy(gpu, 32, 32, 0) == (0.5, "blocks")
    assert blocks_per_sm(gpu, 128, 32, 100 * 1024) == (2, "shared memory")
    assert blocks_per_sm(gpu, 1024, 255, 0)[0] == 0
