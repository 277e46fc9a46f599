"""What is committed under `artifacts` is what the tool makes of whole runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from beamsearch.records.packed import opened_run
from beamsearch.records.trace import Trace, write_record
from tests import ROOT
from tests.cli.test_display import NO_GPU
from tests.records.test_packed import contents
from tools.pack_run import pack

RUNS = sorted(path.parent for path in (ROOT / "artifacts").glob("*/*/run.json"))
RESULTS = {"run.json", "results.tsv", "input_kernel.py", "optimized_kernel_beam_search.py"}
BROWSED = RESULTS | {"problem.py", "confirmation.json"}
"""What stands beside the archive and the rounds of a run that is to be browsed."""
OF_A_ROUND = {
    *("input_ncu_metrics.json", "bottleneck_prompt.txt", "bottleneck_response.txt"),
    *("strategy.json", "opt_prompt.txt", "opt_reply.txt", "kernel.py", "reflexion.txt"),
    *("optimized_ncu_metrics.json", "benchmark_results.json", "round.json"),
}


def name(run: Path) -> str:
    return f"{run.parent.name}-{run.name[:2]}"


def test_one_run_of_a_problem_is_kept_for_each_thinker():
    assert [name(run) for run in RUNS] == [
        *("claude-43", "claude-77", "claude-82"),
        *("playbook-04", "playbook-36", "playbook-43", "playbook-77", "playbook-82"),
    ]


@pytest.mark.parametrize("run", RUNS, ids=name)
def test_a_committed_run_is_as_the_tool_leaves_it(run, tmp_path):
    browsed = run.parent.name == "claude"
    pack(run, tmp_path / "again", rounds=browsed)
    # Another liblzma may compress otherwise: of archives the contents are compared.
    again = contents(tmp_path / "again")
    here = contents(run)
    assert here.pop("trace.tar.xz") and again.pop("trace.tar.xz")
    assert again == here
    whole = contents(opened_run(run).folder)
    assert contents(opened_run(tmp_path / "again").folder) == whole
    assert all(whole[path] == text for path, text in here.items())
    assert any("/workers/w3/calls/" in path for path in whole)

    rounds = {path for path in here if path.startswith("optimization_trace/")}
    assert here.keys() - rounds == (BROWSED if browsed else RESULTS)
    of_rounds = {path.rsplit("/", 1)[1] for path in rounds}
    assert of_rounds == (OF_A_ROUND if browsed else set())
    assert all(path.count("/") == 2 for path in rounds), "no worker's own folder"


def test_the_same_run_gives_the_same_archive(tmp_path):
    (run,) = (run for run in RUNS if name(run) == "playbook-04")
    for target in ("one", "other"):
        pack(run, tmp_path / target, rounds=True)
    assert contents(tmp_path / "one") == contents(tmp_path / "other")


def test_what_cannot_be_packed_is_said_in_one_line(tmp_path):
    trace = Trace(tmp_path / "run")
    write_record(trace.run_file, NO_GPU.model_copy(update={"rounds": []}))
    (run,) = (run for run in RUNS if name(run) == "playbook-04")
    cases = (
        (tmp_path / "nowhere", tmp_path / "target", "holds no run"),
        (trace.folder, tmp_path / "target", "is not finished"),
        (run, trace.folder, "is not an empty folder"),
    )
    for source, target, hint in cases:
        command = [sys.executable, "-m", "tools.pack_run", str(source), str(target)]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 1 and hint in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert not (tmp_path / "target").exists()
