"""time: kernels side by side, which needs a GPU."""

import json
from pathlib import Path

import pytest

KERNEL = str(Path(__file__).parents[2] / "problems/43_Max_Pooling_3D/input_kernel.py")


def test_without_a_gpu_it_says_what_to_do(beamsearch):
    done = beamsearch("time", "43", KERNEL, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3
    assert not done.stdout
    assert "NVIDIA GPU" in done.stderr and "`verify`" in done.stderr


@pytest.mark.gpu
@pytest.mark.timeout(290)
def test_a_kernel_beside_pytorch_and_itself(beamsearch):
    done = beamsearch("time", "43", KERNEL, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    assert {"input_kernel", "eager", "compile", "max_autotune"} <= set(told["times"])
    assert told["failed"] == {}
    for name, ratio in told["over_subject"].items():
        assert ratio["low"] <= ratio["median"] <= ratio["high"], name
    assert told["floor"]["time_ms"] < told["times"]["input_kernel"]["time_ms"]
