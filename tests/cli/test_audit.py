"""`audit`: what a person sees of a problem that tells nothing."""

import json
from pathlib import Path

import pytest

from beamsearch.errors import ProblemError
from beamsearch.suite.problems import files_of
from tests.commands import beamsearch
from tests.suite.problems import write

FLAWED = "x.sum(1, keepdim=True).softmax(1)"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, call in (("flawed", FLAWED), ("fine", "x.exp()"), ("broken", "x +")):
        (tmp_path / name).mkdir()
        write(tmp_path / name, call, inputs="torch.randn(rows * 64, columns)")
    return tmp_path


def test_flaws_are_told_and_counted(folder):
    done = beamsearch("audit", str(folder), "--jobs", "2")
    assert done.returncode == 1, "one does not load"
    text = done.stdout
    assert "broken\n    cannot be run: " in text and "does not parse" in text
    assert "removable work: _softmax along dimension 1 of (32768, 1), of one element" in text
    fine = text.partition("fine: ")[2].splitlines()
    assert fine[0].startswith("0.0671 GB") and not fine[1].startswith("    ")
    assert "3 problems: 1 cannot be run, 2 shrink, 1 have a flaw" in text.splitlines()[-1]


def test_json_has_every_problem_in_order(folder):
    names = [str(folder / name) for name in ("flawed", "fine")]
    done = beamsearch("audit", *names, "--json")
    assert done.returncode == 0, done.stderr
    flawed, fine = json.loads(done.stdout)["problems"]
    assert (flawed["name"], fine["name"]) == ("flawed", "fine")
    assert fine["faults"] == [] and fine["shrunk"] and fine["draws"] == 5
    assert {fault["flaw"] for fault in flawed["faults"]} >= {"removable work", "idle data"}


@pytest.mark.slow
def test_a_run_on_a_flawed_problem_says_so_first_and_last(tmp_path):
    (tmp_path / "wasteful").mkdir()
    write(tmp_path / "wasteful", "x.exp().unsqueeze(1).sum(1)", inputs="torch.randn(rows, columns)")
    kernel, output = tmp_path / "kernel.py", tmp_path / "run"
    kernel.write_text(
        "import torch, triton, triton.language as tl\n\n@triton.jit\n"
        "def exp(x, y, n, B: tl.constexpr):\n"
        "    i = tl.program_id(0) * B + tl.arange(0, B)\n"
        "    tl.store(y + i, tl.exp(tl.load(x + i, mask=i < n)), mask=i < n)\n\n"
        "def kernel_function(x):\n"
        "    x = x.contiguous()\n"
        "    y = torch.empty_like(x)\n"
        "    exp[(triton.cdiv(x.numel(), 256),)](x, y, x.numel(), B=256)\n"
        "    return y\n"
    )
    given = ("--kernel", kernel, "--output", output, "--llm", "playbook")
    limits = ("--rounds", "1", "--workers", "1", "--variants", "1")
    done = beamsearch("run", tmp_path / "wasteful", *given, *limits)
    assert done.returncode == 0, done.stderr
    said = (
        "a win on wasteful may mean little: removable work: sum along dimension 1 of (512, 1, 256)"
    )
    told = [line for line in (done.stdout + done.stderr).splitlines() if line.strip()]
    assert told[0].startswith(said)
    assert sum(line.startswith(said) for line in told) == 2
    flaws = {fault["flaw"] for fault in json.loads((output / "run.json").read_text())["flaws"]}
    assert flaws == {"removable work", "launch overhead"}


def test_what_is_named_is_found_once(folder, tmp_path):
    fine = folder / "fine" / "problem.py"
    assert files_of([str(fine), str(folder / "fine")], None) == [fine]
    with pytest.raises(ProblemError, match="none of"):
        (tmp_path / "empty").mkdir()
        files_of([str(tmp_path / "empty")], None)
