"""The command line from outside: help at once, versions, lists, and where output goes."""

import json
import resource
import subprocess
import sys
import tomllib

import pytest

from beamsearch import __version__
from beamsearch.__main__ import OLDEST, start
from tests import ROOT

VERBS = ("run", "resume", "problems", "verify", "profile", "show", "benchmark", "doctor")
HEAVY = ("torch", "triton", "openai", "rich", "numpy", "jinja2", "beamsearch.records")
"""Not pydantic: Typer itself loads it for a verb's options."""


def beamsearch(*arguments: str, **options) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "beamsearch", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        **options,
    )


@pytest.mark.parametrize("verb", [None, *VERBS])
def test_help_imports_nothing_heavy(verb):
    arguments = [verb, "--help"] if verb else ["--help"]
    code = (
        "import sys\nfrom beamsearch.cli.app import main\n"
        f"try: main({arguments!r})\n"
        f"finally: print('HEAVY', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Usage: beamsearch" in done.stdout
    assert done.stdout.rstrip().endswith("HEAVY []")


@pytest.mark.parametrize("command", [["-m", "beamsearch", "problems"], ["benchmark.py", "43"]])
def test_a_python_without_what_it_needs_is_told_which_one_has_it(command):
    # `-S`: without installed packages
    done = subprocess.run(
        [sys.executable, "-S", *command], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2 and done.stdout == ""
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"error: typer is not installed for {sys.executable}; ")
    assert "pip install -e ." in line


def test_a_python_that_is_too_old_is_told_so(monkeypatch, capsys):
    stated = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    assert stated == ">={}.{}".format(*OLDEST)
    monkeypatch.setattr(sys, "version_info", (3, 9, 1))
    with pytest.raises(SystemExit, match="2"):
        start(["problems"])
    assert capsys.readouterr().err.startswith("error: this is Python 3.9; beamsearch needs 3.11")


def test_help_answers_at_once():
    # The processor's time, best of three: a busy machine delays, an import that crept in works. A
    # slow machine does that to Python's own imports too.
    def seconds(*command: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *command], capture_output=True, timeout=120, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    least = min(seconds("-c", "import typer.main, pydantic.main, json") for _ in range(3))
    assert 0 < min(seconds("-m", "beamsearch", "--help") for _ in range(3)) < 4 * least


def test_help_documents_verbs_and_exit_codes():
    told = beamsearch("--help").stdout
    assert all(verb in told for verb in VERBS)
    assert "Exit codes:" in told and "130" in told


def test_version():
    assert beamsearch("--version").stdout == f"beamsearch {__version__}\n"


@pytest.mark.slow
def test_problems_list_least_work():
    # Given the problems that come along; shapes and bytes from their definitions
    found = {p["name"]: p for p in json.loads(beamsearch("problems", "--json").stdout)["problems"]}
    pooling = found["43_Max_Pooling_3D"]
    assert pooling["inputs"] == {"x": [16, 32, 128, 128, 128]}
    assert pooling["output"] == [16, 32, 62, 62, 62]
    assert pooling["least_bytes"] == 2 * 16 * 32 * (128**3 + 62**3)
    assert len(found) >= 14 and pooling["dtype"] == "bfloat16"
    assert all(p["least_bytes"] > 1e8 and p["input_kernel"] for p in found.values())


def test_problems_tells_of_one_by_its_name():
    (found,) = json.loads(beamsearch("problems", "softmax", "--json").stdout)["problems"]
    assert found["name"] == "softmax" and found["inputs"] == {"x": [32768, 16384]}
    unknown = beamsearch("problems", "softmx")
    assert unknown.returncode != 0
    assert "no problem, folder or file called 'softmx'" in unknown.stderr
    assert "Traceback" not in unknown.stderr
    whole = beamsearch("problems", "--kernelbench", "somewhere")
    assert whole.returncode == 2 and "name one of its problems" in whole.stderr


def test_output_into_a_closed_pipe_is_quiet():
    line = f"{sys.executable} -m beamsearch problems | true"
    done = subprocess.run(line, shell=True, capture_output=True, text=True, timeout=120)
    assert done.stderr == ""
