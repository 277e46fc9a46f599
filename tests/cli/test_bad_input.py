"""Whatever a user gets wrong ends in one line that says what to do, and in the right exit code."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import PYTHONPATH, ROOT


def one_line(done: subprocess.CompletedProcess[str], code: int) -> str:
    """The error's only line."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 1, done.stderr
    return lines[0]


CASES = {
    "unknown problem": (["run", "44_Max_Poling"], 2, "43_Max_Pooling_3D"),
    "ambiguous problem": (["run", "conv"], 2, "77_conv_transposed"),
    "unknown target": (["run", "43", "--target", "rtx9999", "--rounds", "1"], 2, "rtx4090"),
    "unknown dtype": (["run", "43", "--dtype", "int3"], 2, "bfloat16"),
    "no rounds": (["run", "43", "--rounds", "0"], 2, "rounds"),
    "bad duration": (["run", "43", "--time-limit", "soon"], 2, "20m"),
    "duration without a unit": (["run", "43", "--time-limit", "5"], 2, "90s, 20m or 1.5h"),
    "who thinks": (["run", "43", "--llm", "oracle"], 2, "playbook"),
    "no endpoint": (["run", "43", "--llm", "openai"], 4, "OPENAI_API_KEY"),
    "model for nobody": (["run", "43", "--llm", "playbook", "--model", "m"], 2, "say nothing"),
    "nothing to learn from": (["run", "43", "--learn-from", "nowhere"], 2, "--learn-from"),
    "no worker could start": (["run", "43", "--max-candidates", "1"], 2, "at least"),
    "missing kernel": (["run", "43", "--kernel", "nowhere.py"], 2, "nowhere.py"),
    "kernel to verify": (["verify", "43", "nowhere.py"], 2, "nowhere.py"),
    "kernel to time": (["time", "43", "nowhere.py"], 2, "nowhere.py"),
    "config missing": (["run", "43", "--config", "nowhere.toml"], 2, "nowhere.toml"),
    "resume nothing": (["resume", "nowhere"], 2, "no run"),
    "questions of nothing": (["questions", "nowhere"], 2, "no run"),
    "answers to nothing": (["answers", "nowhere"], 2, "no run"),
    "show nothing": (["show", "nowhere"], 2, "no run"),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_line_and_exit_code(beamsearch, case, tmp_path):
    arguments, code, hint = case
    line = one_line(beamsearch(*arguments, cwd=tmp_path), code)
    assert line.startswith("error: ") and hint in line


def test_a_packed_run_is_not_written_into(beamsearch, tmp_path):
    packed = ROOT / "artifacts" / "playbook" / "43_Max_Pooling_3D"
    folder = tmp_path / "packed"
    shutil.copytree(packed, folder)
    line = one_line(beamsearch("run", "43", "--output", "packed", cwd=tmp_path), 2)
    assert "packed run" in line and "resume" in line
    assert {path.name for path in folder.iterdir()} == {path.name for path in packed.iterdir()}


def test_device_that_is_not_there(beamsearch, tmp_path):
    done = beamsearch("run", "43", "--device", "7", cwd=tmp_path, CUDA_VISIBLE_DEVICES="")
    assert "no NVIDIA GPU" in one_line(done, 2)


def test_unknown_setting_names_the_known(beamsearch, tmp_path):
    (tmp_path / "settings.toml").write_text("workers = 2\nwrokers = 3\n")
    line = one_line(beamsearch("run", "43", "--config", "settings.toml", cwd=tmp_path), 2)
    assert "'wrokers'" in line and "workers" in line


@pytest.mark.parametrize(
    ("source", "hint"),
    [
        ("def kernel_function(x:\n", "does not parse"),
        ("def kernel(x): return x\n", "kernel_function"),
    ],
)
def test_kernel_that_cannot_be_one(beamsearch, source, hint, tmp_path):
    (tmp_path / "kernel.py").write_text(source)
    assert hint in one_line(beamsearch("run", "43", "--kernel", "kernel.py", cwd=tmp_path), 2)
    assert not (tmp_path / "runs").exists(), "nothing is left behind by a run that never began"


@pytest.mark.parametrize("words", [("--llm", "oracle"), ("--kernel", "nowhere.py")])
def test_a_slip_is_told_before_torch_is_imported(words, tmp_path):
    (tmp_path / "torch.py").write_text("raise SystemExit('torch is imported')")
    done = subprocess.run(
        [sys.executable, "-m", "beamsearch", "run", "43", *words],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{PYTHONPATH}"},
        capture_output=True,
        text=True,
    )
    assert words[1] in one_line(done, 2)


def test_output_that_is_a_file(beamsearch, tmp_path):
    (tmp_path / "taken").write_text("mine")
    line = one_line(beamsearch("run", "43", "--output", "taken", cwd=tmp_path), 2)
    assert "taken" in line
    assert (tmp_path / "taken").read_text() == "mine"


@pytest.mark.slow
def test_output_that_cannot_be_written(beamsearch, tmp_path):
    # /proc takes no folders, not even from root
    line = one_line(beamsearch("run", "43", "--output", "/proc/beamsearch", cwd=tmp_path), 2)
    assert "/proc/beamsearch" in line


@pytest.mark.slow
def test_output_that_holds_something_else(beamsearch, tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    line = one_line(beamsearch("run", "43", "--output", "full", cwd=tmp_path), 2)
    assert "--output" in line
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_verbose_shows_the_traceback(beamsearch, tmp_path):
    done = beamsearch("run", "nothing-like-it", "--verbose", cwd=tmp_path)
    assert done.returncode != 0
    assert "Traceback" in done.stderr and "ProblemError" in done.stderr


@pytest.mark.slow
def test_a_problem_without_a_first_kernel_says_where_one_comes_from(beamsearch, tmp_path):
    problem = Path(__file__).parents[1] / "data" / "inductor" / "softmax" / "problem.py"
    done = beamsearch("run", str(problem), "--llm", "playbook", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 2
    for way in ("--kernel", "OPENAI_API_KEY", "NVIDIA GPU"):
        assert way in done.stderr
