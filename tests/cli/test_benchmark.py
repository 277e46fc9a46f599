"""benchmark.py: one line a problem, a summary, and an exit code that says what is missing."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from beamsearch.cli.benchmark import Row, line, summary
from beamsearch.problem.problem import find_problem
from beamsearch.records.measurement import Measurement
from kernel_profiling.profile import Floor
from tests import PYTHONPATH, ROOT

FLOOR = Floor(
    least_bytes=2_391_791_616,
    flops=0,
    bandwidth_gb_s=4600.0,
    flops_rate_tflop_s=989.0,
    bandwidth_source="measured",
    gpu="H200 SXM",
)


def measured(time_ms: float, visit: str = "v1") -> Measurement:
    return Measurement(
        source="measured",
        time_ms=time_ms,
        p20_ms=time_ms,
        p80_ms=time_ms,
        count=100,
        gpu="NVIDIA H200",
        gpu_uuid="GPU-1",
        visit=visit,
    )


def row(missing: dict[str, str] | None = None, **times: float) -> Row:
    taken = {name: measured(time) for name, time in times.items()}
    return Row("43_Max_Pooling_3D", "NVIDIA H200", taken, missing or {}, FLOOR)


WHOLE = {"eager": 4.081, "compile": 5.445, "max_autotune": 1.25, "input": 2.897, "opt": 0.612}


def test_one_line_a_problem():
    assert line(row(**WHOLE)) == (
        "43_Max_Pooling_3D  eager=4.081 compile=5.445 max-autotune=1.250 input=2.897 opt=0.612"
        "  floor=0.520 (1.18x)  8.90x"
    )


def test_wrong_and_missing_kernels_are_shown_as_such():
    # Given a wrong optimized kernel and no input kernel
    baselines = {key: WHOLE[key] for key in ("eager", "compile", "max_autotune")}
    bad = row({"opt": "wrong: the last row differs", "input": "missing"}, **baselines)

    # Then neither has a time, nothing is claimed over compile, and the reason is told
    assert "input=missing opt=WRONG  floor=0.520\n" in line(bad)
    assert line(bad).endswith("opt: wrong: the last row differs")
    assert not bad.sound
    assert bad.over("compile") is None


def test_times_of_two_visits_are_not_compared():
    apart = row(**WHOLE)
    apart.times["opt"] = measured(0.6, visit="v2")
    assert apart.over("compile") is None


def test_summary_has_geometric_mean_median_and_count():
    # Given speedups of 2, 4 and 0.5 over compile, and a problem with no kernel
    rows = [row(compile=2.0, opt=1.0), row(compile=8.0, opt=2.0), row(compile=1.0, opt=2.0)]
    rows.append(row({"opt": "missing"}, compile=1.0))
    assert summary(rows) == [
        "over torch.compile: geometric mean 1.59x, median 2.00x, faster on 2 of 4"
    ]


def benchmark(folder: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(ROOT / "benchmark.py"), *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": PYTHONPATH, "XDG_CACHE_HOME": str(folder), **env},
        capture_output=True,
        text=True,
        timeout=280,
    )


def test_without_a_gpu_it_says_what_it_needs(tmp_path):
    done = benchmark(tmp_path, "43", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 3
    assert done.stdout == ""
    assert len(done.stderr.strip().splitlines()) == 1
    assert "NVIDIA GPU" in done.stderr


def test_unknown_problem_is_told_before_anything_is_timed(tmp_path):
    done = benchmark(tmp_path, "43", "no-such-problem-or-run")
    assert done.returncode == 2
    assert "no-such-problem-or-run" in done.stderr


@pytest.mark.gpu
def test_measures_what_is_there(tmp_path):
    # Given a problem with an input kernel and no optimized one
    shutil.copytree(find_problem("82").path.parent, tmp_path / "mine")
    done = benchmark(tmp_path, "mine", "--json", "out.json")

    # Then it is measured beside the baselines, and the missing kernel makes the exit code 1
    assert done.returncode == 1, done.stderr
    (only,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert set(only["times"]) == {"eager", "compile", "max_autotune", "input"}
    assert only["missing"] == {"opt": "missing"}
    assert len({time["visit"] for time in only["times"].values()}) == 1
    assert only["times"]["input"]["time_ms"] > only["floor_ms"] > 0
