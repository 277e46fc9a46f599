"""runs: the list, and what `clean` may take away."""

import json
import os
import shutil
import time

import pytest

from beamsearch.records.trace import Trace
from beamsearch.run.folders import size_of
from beamsearch.run.lock import folder_lock
from tests import ROOT
from tests.llm.runs import PROBLEM, SMALL
from tests.llm.runs import beamsearch as command
from tests.traces import differences

RECORDED = ROOT / "artifacts" / "claude"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A finished run, with what a kill or a profiler may leave in its folder."""
    folder = tmp_path_factory.mktemp("finished") / "runs" / "doubling" / "first"
    command("run", PROBLEM, *SMALL, "--llm", "playbook", "--output", folder)
    for name in (".scratch/processes/a.so", "profile.ncu-rep", "optimization_trace/.a.partial"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name * (100_000 // len(name)))
    return folder


@pytest.fixture
def copied(finished, tmp_path):
    folder = tmp_path / "runs" / "doubling" / "first"
    shutil.copytree(finished, folder)
    return folder


def listed(beamsearch, *arguments):
    done = beamsearch("runs", *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["runs"]


def test_recorded_runs_are_listed_with_their_bests(beamsearch):
    rows = {row["problem"][:2]: row for row in listed(beamsearch, RECORDED)}
    assert sorted(rows) == ["43", "77", "82"]
    row, (folder,) = rows["43"], RECORDED.glob("43_*")
    confirmed = json.loads((folder / "confirmation.json").read_text())
    winner, eager = confirmed["winner"]["time_ms"], confirmed["baselines"]["eager"]["time_ms"]
    assert row["best"] == confirmed["name"] and row["time"]["time_ms"] == winner
    assert row["over"]["eager"] == pytest.approx(eager / winner)
    assert (row["state"], row["packed"], row["candidates"]) == ("finished", True, 40)
    assert row["folder"] == str(folder)
    files = (path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert row["size_bytes"] == pytest.approx(sum(files), rel=0.3)
    text = beamsearch("runs", RECORDED).stdout
    assert f"{row['best']} {winner:.4g} ms" in text and text.splitlines()[-1].startswith("3 runs, ")


def test_no_runs_and_no_folder(beamsearch, tmp_path):
    assert beamsearch("runs").stdout == "no runs under runs\n"
    assert beamsearch("runs", "clean").stdout == "nothing to free in 0 of 0 runs under runs\n"
    done = beamsearch("runs", "elsewhere")
    assert done.returncode == 2 and "elsewhere is no folder" in done.stderr


@pytest.mark.slow
def test_states_are_told_by_who_holds_the_lock(beamsearch, copied, tmp_path):
    trace = Trace(copied)
    (one,) = listed(beamsearch)
    assert (one["state"], one["folder"]) == ("finished", "runs/doubling/first")
    killed = trace.run_record().with_values(status="running")
    trace.run_file.write_text(killed.model_dump_json())
    assert listed(beamsearch)[0]["state"] == "stopped"
    with folder_lock(copied):
        assert listed(beamsearch)[0]["state"] == "running"
    (tmp_path / "runs" / "damaged").mkdir()
    (tmp_path / "runs" / "damaged" / "run.json").write_text("{")
    done = beamsearch("runs")
    assert "runs/damaged is left out: " in done.stderr and "1 run, " in done.stdout


@pytest.mark.slow
def test_a_run_that_is_held_young_or_not_finished_is_left(beamsearch, copied):
    before = sorted(copied.rglob("*"))
    with folder_lock(copied):
        assert "nothing to free in 0 of 1 run" in beamsearch("runs", "clean", "--yes").stdout
    told = beamsearch("runs", "clean", "--yes", "--older-than", "1d").stdout
    assert "nothing to free in 0 of 1 run" in told
    done = beamsearch("runs", "clean")
    assert done.returncode == 2 and "give --yes" in done.stderr and "profile.ncu-rep" in done.stdout
    trace = Trace(copied)
    record = trace.run_record()
    trace.run_file.write_text(record.with_values(status="stopped").model_dump_json())
    assert "nothing to free in 0 of 1 run" in beamsearch("runs", "clean", "--yes").stdout
    assert sorted(copied.rglob("*")) == before


@pytest.mark.slow
def test_nothing_that_a_verb_needs_is_lost(beamsearch, copied, tmp_path):
    # Given a run that is old enough
    shutil.copytree(copied, tmp_path / "whole")
    past = time.time() - 31 * 86400
    os.utime(copied / "run.json", (past, past))
    shown, before = beamsearch("show", copied).stdout, size_of(copied)

    # When it is cleaned
    told = beamsearch("runs", "clean", "--older-than", "30d", "--yes").stdout

    # Then what it freed is free, twice as much is not told, and only leftovers are gone
    freed = before - size_of(copied)
    assert freed > 3 * 100_000 and f"freed {freed / 1e3:.0f} kB" in told
    assert told.count(f"{freed / 1e3:.0f} kB") == 2
    assert differences(tmp_path / "whole", copied) == [
        ".scratch/processes/a.so",
        "optimization_trace/.a.partial",
        "profile.ncu-rep",
    ]
    assert "nothing to free in 1 of 1 run" in beamsearch("runs", "clean", "--yes").stdout
    # No kernel shares its file with another: people edit them.
    assert {path.stat().st_nlink for path in copied.rglob("*.py")} == {1}

    # And show, export, replay and resume do as before
    assert beamsearch("show", copied).stdout == shown
    assert beamsearch("export", copied, "--output", "exported").returncode == 0
    assert "nothing came out differently" in beamsearch("replay", copied, "--output", "b").stdout
    more = [beamsearch("resume", folder, "--rounds", "2") for folder in (copied, "whole")]
    assert [done.returncode for done in more] == [0, 0]
    assert len(Trace(copied).completed_rounds()) == 3
    assert differences(tmp_path / "whole", copied) == ["profile.ncu-rep"]
