"""compare: runs side by side, by their own ratios."""

import json

import pytest

from beamsearch.records.trace import Trace
from tests import ROOT

CLAUDE, PLAYBOOK = ROOT / "artifacts" / "claude", ROOT / "artifacts" / "playbook"


def folder(kind, number):
    (found,) = kind.glob(f"{number}_*")
    return found


def test_two_runs_of_a_problem(beamsearch):
    folders = [folder(CLAUDE, 82), folder(PLAYBOOK, 82)]
    done = beamsearch("compare", *folders, "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    for path, run in zip(folders, told["runs"], strict=True):
        record = json.loads((path / "run.json").read_text())
        confirmed = record["confirmation"]
        own, others = confirmed["winner"]["time_ms"], confirmed["baselines"]
        assert run["time"].items() >= confirmed["winner"].items() and run["confirmed"]
        assert run["over_input"] == pytest.approx(confirmed["input"]["time_ms"] / own)
        assert run["over"]["max_autotune"] == pytest.approx(others["max_autotune"]["time_ms"] / own)
        assert run["of_floor"] == pytest.approx(own / Trace(path).run_record().floor.time_ms)
        assert run["candidates"] == record["totals"]["candidates"]
    assert told["settings"]["llm"] == ["batch", "playbook"] and "workers" not in told["settings"]
    assert told["same_problem"] and told["same_input"] and told["same_target"]


def test_the_table_says_what_does_not_compare(beamsearch):
    done = beamsearch("compare", folder(CLAUDE, 43), folder(PLAYBOOK, 43), folder(PLAYBOOK, 36))
    lines = {line[:19].strip(): line for line in done.stdout.splitlines()}
    assert "0.5374 ms [0.5364, 0.5383]" in lines["time"]
    assert lines["over max-autotune"].split()[2:] == ["2.31x", "1.30x", "1.00x"]
    assert "do not compare; ratios do" in done.stdout
    assert "The problems differ" in done.stdout
    assert "~" not in done.stdout


def test_fewer_than_two_and_none(beamsearch):
    done = beamsearch("compare", folder(CLAUDE, 43))
    assert done.returncode == 2 and "two runs or more" in done.stderr
    done = beamsearch("compare", folder(CLAUDE, 43), "nowhere")
    assert done.returncode == 2 and "holds no run" in done.stderr
