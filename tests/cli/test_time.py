"""time: kernels side by side, which needs a GPU."""

import json
from pathlib import Path

import pytest

from beamsearch.api.time import Timing, named_kernels
from beamsearch.cli.time import as_json
from beamsearch.errors import UsageError
from beamsearch.records.job import Comparison
from beamsearch.records.measurement import Measurement
from kernel_profiling.floor.roofline import make_floor
from kernel_profiling.gpus import find_gpu

KERNEL = str(Path(__file__).parents[2] / "problems/43_Max_Pooling_3D/input_kernel.py")


def test_without_a_gpu_it_says_what_to_do(beamsearch):
    done = beamsearch("time", "43", KERNEL, CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3
    assert not done.stdout
    assert "NVIDIA GPU" in done.stderr and "`verify`" in done.stderr


def test_the_table_tells_ratios_with_intervals_from_shared_turns():
    def measured(time_ms):
        return Measurement(
            source="measured",
            time_ms=time_ms,
            p20_ms=0.99 * time_ms,
            p80_ms=1.01 * time_ms,
            count=100,
            gpu="NVIDIA H200",
            gpu_uuid="GPU-1",
            visit="a",
        )

    comparison = Comparison(
        measurements={"mine": measured(1.0), "twin": measured(1.001), "max_autotune": measured(2)},
        failed={"broken": "wrong: the last row differs"},
        turns={
            "mine": [1.0] * 10,
            "twin": [1.0, 1.01, 0.99, 1.0, 1.002, 0.998, 1.001, 1.0, 1.0, 0.999],
            "max_autotune": [2.0, 2.01, 1.99, 2.02, 1.98, 2.0, 2.0, 2.01, 1.99, 2.0],
        },
    )
    floor = make_floor(4 * 10**9, 10**9, 0, "bfloat16", find_gpu("h200"), None)
    timing = Timing(
        problem="36_RMSNorm",
        gpu="NVIDIA H200",
        subject="mine",
        kernels=["mine", "twin", "broken"],
        floor=floor,
        comparison=comparison,
        scaled="",
    )
    lines = str(timing).splitlines()
    assert "floor" in lines[0]
    assert " the time of " not in lines[1]
    assert lines[2].endswith("[0.998, 1.002] the time of mine: a tie")
    assert "max-autotune" in lines[3] and lines[3].endswith(
        "[1.990, 2.010] the time of mine: slower"
    )
    assert "the last row differs" in lines[4]
    assert as_json(timing)["over_subject"]["max_autotune"]["verdict"] == "slower"
    page = timing._repr_html_()
    assert "<td>max-autotune</td>" in page and "a tie" in page and "the last row differs" in page


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
    assert told["floor_ms"] < told["times"]["input_kernel"]["time_ms"]


def test_kernels_never_take_the_name_of_a_baseline_or_of_each_other():
    paths = [Path(name) for name in ("a/k.py", "b/k.py", "c/k.py", "input.py", "x/input.py")]
    paths += [Path(name) for name in ("eager.py", "compile.py", "max-autotune.py", "eager")]
    names = named_kernels(paths)
    assert list(names.values()) == paths
    assert not set(names) & {"input", "eager", "compile", "max_autotune", "max-autotune"}
    assert list(names)[:5] == ["k", "k.py", "c/k.py", "input.py", "x/input.py"]


def test_sources_and_kernels_with_names_are_told_apart():
    assert list(named_kernels(["a\n", "b\n", "kernel.py"])) == ["kernel", "kernel-2", "kernel.py"]
    assert named_kernels({"mine": "a\n"}) == {"mine": "a\n"}
    with pytest.raises(UsageError, match="rename"):
        named_kernels({"eager": "a\n"})
    with pytest.raises(UsageError, match="no kernel"):
        named_kernels([])
