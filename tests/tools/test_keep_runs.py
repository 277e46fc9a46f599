"""Runs kept without the text of their problems."""

import tarfile

import pytest

from tests import ROOT
from tools.keep_runs import keep, restore

FILES = {
    "problem.py": "theirs",
    "run.json": '{"problem": "89_cumsum"}',
    ".secret_seed": "7",
    ".lock": "",
    "requests-a.jsonl": "theirs",
    "responses0.jsonl": "ours",
    ".scratch/sources/kernel.py": "made anew",
    "optimization_trace/round_0/compiled/default.json": "made anew",
    "optimization_trace/round_1/workers/w0/opt_prompt.txt": "theirs",
    "optimization_trace/round_1/workers/w0/opt_prompt_2.txt": "theirs",
    "optimization_trace/round_1/workers/w0/opt_reply.txt": "ours",
}


def test_what_is_kept_goes_on_beside_the_problem_that_it_names(tmp_path):
    run, problems = tmp_path / "mine", tmp_path / "bench" / "level1"
    for name, text in FILES.items():
        path = run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    archive = tmp_path / "kept.tar.xz"
    keep(archive, [run])
    with tarfile.open(archive) as members:
        assert {name.removeprefix("mine/") for name in members.getnames()} == {
            *("run.json", ".secret_seed", "responses0.jsonl"),
            "optimization_trace/round_1/workers/w0/opt_reply.txt",
        }
    with pytest.raises(FileNotFoundError, match=r"no 89_cumsum\.py"):
        restore(archive, tmp_path / "again", tmp_path / "bench")
    problems.mkdir(parents=True)
    (problems / "89_cumsum.py").write_text("theirs")
    (again,) = restore(archive, tmp_path / "again", tmp_path / "bench")
    assert (again / "problem.py").read_text() == "theirs"
    assert (again / ".secret_seed").read_text() == "7"


def test_a_problem_may_stand_in_a_folder_of_its_name(tmp_path):
    run = tmp_path / "mine"
    run.mkdir()
    (run / "run.json").write_text('{"problem": "softmax"}')
    keep(tmp_path / "kept.tar.xz", [run])
    (there,) = restore(tmp_path / "kept.tar.xz", tmp_path / "again", ROOT / "problems")
    problem = ROOT / "problems" / "softmax" / "problem.py"
    assert (there / "problem.py").read_text() == problem.read_text()
