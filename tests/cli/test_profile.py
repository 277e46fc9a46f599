"""profile: the floor, the findings and the listing, without a GPU from the compiler alone."""

import json
from pathlib import Path

import pytest

SMALL = Path(__file__).parents[1] / "llm" / "doubling"
DIRECT = Path(__file__).parents[1] / "kernels/conv_transposed_direct.py"


@pytest.mark.slow
def test_tells_the_distance_what_is_wrong_and_where(beamsearch):
    done = beamsearch("profile", "43", "--json", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["profile"]["source"] == "compiler"
    assert told["floor"]["bandwidth_source"] == "datasheet"
    assert told["measurement"]["source"] == "modelled"

    # Then the two-byte loads of the plain kernel are found, on the line that loads
    (narrow,) = [item for item in told["findings"] if item["kind"] == "narrow_access"]
    lines = told["annotated_source"].splitlines()
    assert any("tl.load(x_ptr + offset" in line and " 16 " in line for line in lines)
    assert narrow["lines"]


@pytest.mark.slow
def test_for_people_it_leads_with_the_floor(beamsearch):
    done = beamsearch("profile", str(SMALL), CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    title, floor, time, *_ = done.stdout.splitlines()
    assert "nothing measured" in title
    assert floor.startswith("floor") and "datasheet" in floor
    assert "~" in time and "x the floor" in time
    assert "tl.load(" in done.stdout


def test_wrong_kernel_is_not_profiled(beamsearch, tmp_path):
    (tmp_path / "kernel.py").write_text("def kernel_function(x, y): return y\n")
    done = beamsearch("profile", "43", "kernel.py")
    assert done.returncode == 1
    assert "verdict: invalid" in done.stdout


@pytest.mark.gpu
def test_with_a_gpu_it_comes_from_nsight_compute(beamsearch):
    told = json.loads(beamsearch("profile", "82", "--json").stdout)
    assert told["measurement"]["source"] == "measured"
    assert told["profile"]["source"] == "ncu" or told["profile"]["note"]


@pytest.mark.gpu
@pytest.mark.timeout(170)
def test_busy_with_work_that_could_go_away_is_not_near_a_roof(beamsearch):
    # Given a kernel of one output a lane that keeps its busiest unit over 90% busy
    told = json.loads(beamsearch("profile", "77", str(DIRECT), "--json").stdout)
    (launch,) = told["profile"]["launches"]
    assert max(n for name, n in launch["metrics"].items() if name.endswith("_busy")) > 90

    # Then the page leads with what the work is, not with how busy it keeps the GPU
    kinds = [item["kind"] for item in told["findings"]]
    assert kinds[:2] == ["idle_matrix_units", "excess_arithmetic"]
    assert "at_the_floor" not in kinds
    assert "88% of the outputs are zero" in told["findings"][1]["title"]
    assert told["measurement"]["time_ms"] > 50 * told["floor_ms"]


def test_one_that_the_interpreter_cannot_run_is_profiled_and_said_to_be_unproven(
    beamsearch, tmp_path
):
    plain = (SMALL / "input_kernel.py").read_text()
    doubled = (
        'tl.inline_asm_elementwise("add.f32 $0, $1, $1;", "=f,f", [tl.maximum(value, 0.0)], '
        "dtype=tl.float32, is_pure=True, pack=1)"
    )
    source = plain.replace("tl.maximum(value, 0.0) * 2.0", doubled)
    assert source != plain
    (tmp_path / "kernel.py").write_text(source)
    done = beamsearch(
        "profile", str(SMALL), tmp_path / "kernel.py", "--json", CUDA_VISIBLE_DEVICES=""
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["measurement"] is None and told["profile"]["source"] == "compiler"
    assert "not shown to be right" in told["profile"]["note"]
    assert "inline_asm not supported" in told["profile"]["note"]
    assert told["profile"]["launches"][0]["registers"] > 0
