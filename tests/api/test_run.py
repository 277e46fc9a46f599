"""A run as objects, and a search that is watched."""

import shutil
import sys
import threading

import pytest

from beamsearch import Run, optimize
from beamsearch.errors import BeamsearchError, UsageError
from beamsearch.records.candidate import Candidate
from beamsearch.records.event import Judged, RoundEnded, RoundStarted, RunEnded, RunStarted
from tests import ROOT

LEAKY = ROOT / "examples" / "leaky_relu"
RECORDED = ROOT / "artifacts" / "claude" / "43_Max_Pooling_3D"
REFUSED = ROOT / "artifacts" / "claude" / "82_conv_depthwise_2D_square_input_square_kernel"


def test_a_recorded_run_is_read_back_as_its_own_records():
    run = Run(RECORDED)
    record = run.record
    assert record.problem == RECORDED.name and record.confirmation is not None
    assert len(run.rounds) == len(record.rounds)
    assert len(run.candidates) == record.totals.candidates + len(run.rounds[0].candidates)
    assert isinstance(run.best, Candidate) and run.best.name == record.best
    assert run.candidate("r0-s0").author == "input" and run.speedups["r0-s0"] == 1
    assert max(run.speedups, key=run.speedups.get) in {c.name for c in run.candidates}
    assert run.progress.of_floor == pytest.approx(
        record.confirmation.winner.time_ms / record.floor.time_ms
    )
    assert run.source("r0-s0") == (RECORDED / "input_kernel.py").read_text()
    assert "def kernel_function" in run.source()
    assert run.profile("r0-s0").source == "ncu"
    with pytest.raises(UsageError, match="no candidate r99"):
        run.candidate("r99")


def test_what_was_refused_has_no_speedup():
    run = Run(REFUSED)
    (late,) = [c for c in run.candidates if not c.verdict.correct]
    assert late.verdict.outcome == "timeout" and late.name not in run.speedups
    assert set(run.speedups) == {c.name for c in run.candidates} - {late.name}


def test_a_run_is_a_table_with_a_row_a_candidate():
    pytest.importorskip("pandas", reason="pandas is not installed")
    run = Run(RECORDED)
    table = run.to_pandas()
    assert list(table["name"]) == [c.name for c in run.candidates]
    best = table.set_index("name").loc[run.best.name]
    assert best["time_ms"] == run.best.measurement.time_ms and best["outcome"] == "correct"
    assert best["speedup"] == run.speedups[run.best.name]
    refused = Run(REFUSED).to_pandas().set_index("outcome").loc["timeout"]
    assert refused[["speedup", "time_ms"]].isna().all() and refused["reason"]
    assert table["time_ms"].dtype.kind == "f"


def test_without_pandas_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"pip install 'beamsearch\[pandas\]'"):
        Run(RECORDED).to_pandas()


def test_a_notebook_shows_a_run_with_everything_escaped(tmp_path):
    folder = Run(RECORDED)._trace.folder
    shutil.copytree(folder, tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    file.write_text(file.read_text().replace(RECORDED.name, "<script>&"))
    run = Run(tmp_path / "run")
    page = run._repr_html_()
    assert "&lt;script&gt;&amp;" in page and "<script>" not in page
    assert run.best.name in page and "x over input" in page
    assert repr(run).startswith(f"Run('{tmp_path}/run'): finished, {run.best.name}")


def test_no_run_is_an_error(tmp_path):
    with pytest.raises(UsageError, match=r"no run.json"):
        Run(tmp_path)


@pytest.mark.slow(turn=3)
@pytest.mark.timeout(290)
def test_a_listener_that_raises_stops_a_run_which_then_goes_on(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    settings = {"llm": "playbook", "rounds": 1, "workers": 2, "variants": 1}
    seen, at_once = [], threading.Lock()

    def listen(event):
        assert at_once.acquire(blocking=False), "two events at once"
        seen.append(event)
        at_once.release()
        if isinstance(event, RoundStarted):
            raise ZeroDivisionError("of the listener")

    # Given a search whose listener raises as the first round begins
    with pytest.raises(ZeroDivisionError, match="of the listener"):
        optimize(LEAKY, on_event=listen, output=tmp_path / "run", **settings)

    # Then it was stopped in order, and nobody was told of more
    assert isinstance(seen[0], RunStarted) and isinstance(seen[-1], RoundStarted)
    stopped = Run(tmp_path / "run")
    assert stopped.record.status == "stopped" and len(stopped.rounds) == 1

    # When it goes on, it ends, each candidate is told of, and the run is the same
    seen.clear()
    run = optimize(
        LEAKY, on_event=lambda event: seen.append(event), output=tmp_path / "run", **settings
    )
    assert run.record.status == "finished" and isinstance(seen[-1], RunEnded)
    told = {event.candidate.name for event in seen if isinstance(event, Judged)}
    assert told == {c.name for c in run.rounds[1].candidates}
    assert [event.round.round for event in seen if isinstance(event, RoundEnded)][-1] == 1
    with pytest.raises(BeamsearchError, match="other settings"):
        optimize(LEAKY, output=tmp_path / "run", **settings | {"workers": 3})
