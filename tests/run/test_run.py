"""The main job, as a user starts it, on a machine with no GPU: what it leaves and what it says."""

import ast
import csv
import io
import json
import os
import subprocess
import sys

import pytest

from beamsearch.records.round import BenchmarkResults
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import WORKER_FILES, Trace, read_record
from kernel_profiling.profile import Profile
from tests import ROOT
from tests.commands import beamsearch
from tests.server import serving

pytestmark = pytest.mark.slow
PROBLEM = ROOT / "tests" / "scaling"


@pytest.fixture(scope="module")
def played(tmp_path_factory):
    """A run of the playbook on a real problem."""
    folder = tmp_path_factory.mktemp("played") / "run"
    options = ["--rounds", "2", "--workers", "3", "--variants", "2", "--llm", "playbook", "--json"]
    result = beamsearch("run", PROBLEM, *options, "--output", folder)
    assert result.returncode == 0, result.stderr
    return folder, result


def test_stdout_is_one_json_object_and_it_is_the_runs_record(played):
    folder, result = played
    record = RunRecord.model_validate(json.loads(result.stdout))
    assert record == Trace(folder).run_record()
    assert record.status == "finished"
    assert record.who_thinks == "playbook"


def test_without_a_gpu_every_time_is_modelled_and_the_run_says_so(played):
    folder, result = played
    trace = Trace(folder)
    times = [c.measurement for r in trace.completed_rounds() for c in r.candidates if c.measurement]
    assert times and all(t.source == "modelled" and str(t).startswith("~") for t in times)
    record = trace.run_record()
    assert record.confirmation is None
    assert record.baselines.compile is None and record.baselines.absent
    assert "modelled" in " ".join(record.notes) and "modelled" in result.stderr


def test_the_playbook_gains_on_the_input_kernel(played):
    record = Trace(played[0]).run_record()
    assert record.rounds[-1].speedup > 1.5
    assert [r.round for r in record.rounds] == [0, 1, 2]
    speedups = [r.speedup for r in record.rounds]
    assert speedups == sorted(speedups)


def test_a_round_leaves_what_the_readme_lists(played):
    trace = Trace(played[0])
    for number in (1, 2):
        record, folder = trace.round_record(number), trace.round(number)
        present = {p.name for p in folder.iterdir()}
        assert set(WORKER_FILES) - present == set(record.absent)
        assert "benchmark_results.json" in present
        results = read_record(folder / "benchmark_results.json", BenchmarkResults)
        assert results.running_best == record.running_best
        assert {r.name for r in results.results} == {c.name for c in record.candidates}
        assert len(record.candidates) >= 3
        assert {c.worker for c in record.candidates} == {0, 1, 2}
        profile = read_record(folder / "input_ncu_metrics.json", Profile)
        assert profile.source == "compiler" and profile.launches[0].registers
        for worker in range(3):
            own = {p.name for p in trace.worker(number, worker).iterdir()}
            assert {"bottleneck_prompt.txt", "opt_reply.txt", "reflexion.txt", "calls"} <= own
    assert (folder / "kernel.py").read_text() in {
        (trace.folder / c.kernel_file).read_text() for c in record.candidates
    }


def test_lineage_is_whole_and_no_candidate_is_its_own_copy(played):
    rounds = Trace(played[0]).completed_rounds()
    known = {"r0-s0"}
    for record in rounds[1:]:
        assert {c.parent for c in record.candidates} <= known
        known |= {c.name for c in record.candidates}
    correct = [c for r in rounds for c in r.candidates if c.verdict.correct and c.worker == 0]
    assert len({c.fingerprint for c in correct}) == len(correct)


def test_the_ledger_has_a_line_a_candidate(played):
    trace = Trace(played[0])
    rows = list(csv.DictReader(io.StringIO(trace.results_file.read_text()), delimiter="\t"))
    candidates = [c for r in trace.completed_rounds() for c in r.candidates]
    assert [row["candidate"] for row in rows] == [c.name for c in candidates]
    assert all(row["ms"].startswith("~") for row in rows if row["verdict"] == "correct")


def test_the_winner_stands_alone(played):
    trace = Trace(played[0])
    source = trace.best_kernel_file.read_text()
    imported = {
        name.name.split(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import)
        for name in node.names
    }
    assert imported == {"torch", "triton"}
    result = subprocess.run(
        [sys.executable, "-I", trace.best_kernel_file],
        capture_output=True,
        text=True,
        check=False,
        env={"CUDA_VISIBLE_DEVICES": "", "PATH": os.environ["PATH"]},
    )
    assert "needs an NVIDIA GPU" in result.stderr
    verified = beamsearch("verify", PROBLEM, trace.best_kernel_file, "--json")
    assert verified.returncode == 0
    assert json.loads(verified.stdout)["verdict"] == "correct"


def test_a_model_behind_http_runs_the_same_way(tmp_path):
    """Every prompt and reply of every round in the trace, the winner verified, the key nowhere."""
    key = "sk-test-7f3a91"
    with serving() as base_url:
        result = beamsearch(
            *["run", PROBLEM, "--rounds", 2, "--workers", 2, "--variants", 1, "--llm", "openai"],
            *["--output", tmp_path / "run"],
            OPENAI_API_KEY=key,
            OPENAI_BASE_URL=base_url,
        )
    assert result.returncode == 0, result.stderr
    trace = Trace(tmp_path / "run")
    record = trace.run_record()
    assert record.status == "finished" and record.rounds[-1].speedup > 1.1
    assert record.totals.model_calls >= 2 * 2 * 3 and record.totals.tokens_in > 1000
    for number in (1, 2):
        for worker in (0, 1):
            folder = trace.worker(number, worker)
            for stem in ("bottleneck", "opt", "reflexion"):
                prompts = list(folder.glob(f"{stem}_prompt.txt"))
                assert prompts and "kernel_function" in prompts[0].read_text()
            assert "kernel_function" in (folder / "opt_reply.txt").read_text()
    best = next(c for r in trace.completed_rounds() for c in r.candidates if c.name == record.best)
    assert best.verdict.correct and best.author not in ("playbook", "input")
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or key not in path.read_text()
    assert key not in result.stdout + result.stderr


def test_an_endpoint_that_refuses_ends_the_run_in_one_line_and_it_resumes(tmp_path):
    folder = tmp_path / "run"
    refused = beamsearch(
        *["run", PROBLEM, "--rounds", 1, "--workers", 1, "--variants", 1, "--llm", "openai"],
        *["--output", folder],
        OPENAI_API_KEY="sk-none",
        OPENAI_BASE_URL="http://127.0.0.1:9/v1",
    )
    assert refused.returncode == 4
    assert "Traceback" not in refused.stderr
    assert "127.0.0.1:9" in refused.stderr
    assert (folder / "optimization_trace" / "round_0" / "round.json").is_file()
    with serving() as base_url:
        resumed = beamsearch("resume", folder, OPENAI_API_KEY="sk-none", OPENAI_BASE_URL=base_url)
    assert resumed.returncode == 0, resumed.stderr
    ended = Trace(folder).run_record()
    assert ended.status == "finished"
    again = beamsearch("resume", folder, OPENAI_API_KEY="sk-none", OPENAI_BASE_URL=base_url)
    assert again.returncode == 0, again.stderr
    assert "it had ended already, and nothing was done" in again.stdout
    assert Trace(folder).run_record() == ended


WRONG = """
import torch
def kernel_function(x):
    return torch.zeros((1, 1, 1, 1, 1), dtype=x.dtype, device=x.device)
"""


@pytest.mark.parametrize(
    ("source", "code", "says"),
    [
        ("import torch\n", 2, "kernel_function"),
        ("def kernel_function(x:\n", 2, "does not parse"),
        (WRONG, 2, "no Triton kernel is launched"),
        ("def kernel_function(nothing, at, all):\n    return nothing\n", 2, "nothing"),
    ],
)
def test_a_bad_input_kernel_is_refused_before_anything_is_spent(tmp_path, source, code, says):
    path = tmp_path / "kernel.py"
    path.write_text(source)
    result = beamsearch("run", "43", "--kernel", path, "--output", tmp_path / "run")
    assert result.returncode == code, result.stderr
    assert says in result.stderr
    assert "Traceback" not in result.stderr
    assert not list((tmp_path / "run").glob("optimization_trace/round_1"))


def test_an_unwritable_folder_is_one_clear_line():
    result = beamsearch("run", "43", "--output", "/proc/nowhere/run")
    assert result.returncode == 2
    assert "/proc/nowhere" in result.stderr and "--output" in result.stderr
    assert "Traceback" not in result.stderr
