"""profile: the floor, the findings and the listing, without a GPU from the compiler alone."""

import json

import pytest


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


def test_for_people_it_leads_with_the_floor(beamsearch):
    done = beamsearch("profile", "82", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stderr
    title, floor, time, *_ = done.stdout.splitlines()
    assert "nothing measured" in title
    assert floor.startswith("floor") and "datasheet" in floor
    assert "~" in time and "x the floor" in time
    assert "tl.load(" in done.stdout


def test_wrong_kernel_is_not_profiled(beamsearch, tmp_path):
    (tmp_path / "kernel.py").write_text("def kernel_function(y): return y\n")
    done = beamsearch("profile", "43", "kernel.py")
    assert done.returncode == 1
    assert "verdict: invalid" in done.stdout


@pytest.mark.gpu
def test_with_a_gpu_it_comes_from_nsight_compute(beamsearch):
    told = json.loads(beamsearch("profile", "82", "--json").stdout)
    assert told["measurement"]["source"] == "measured"
    assert told["profile"]["source"] == "ncu" or told["profile"]["note"]
