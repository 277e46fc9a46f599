"""show: a run in one screen, from nothing but its records."""

import json

from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import Trace, write_record
from tests.cli.test_display import NO_GPU, Outcome, candidate


def run_folder(path):
    trace = Trace(path)
    write_record(trace.run_file, NO_GPU)
    first = candidate(Outcome.CORRECT).model_copy(update={"name": "r0-s0", "round": 0})
    zero = RoundRecord(
        round=0, candidates=[first], best="r0-s0", beam=["r0-s0"], running_best="r0-s0"
    )
    tried = [candidate(Outcome.CORRECT), candidate(Outcome.WRONG)]
    tried[1] = tried[1].model_copy(update={"name": "r1-w0-v0"})
    one = RoundRecord(
        round=1,
        candidates=tried,
        best_worker=0,
        best="r1-w0-v1",
        win=True,
        beam=["r1-w0-v1"],
        running_best="r1-w0-v1",
    )
    write_record(trace.round(0) / "r0-s0.json", first)
    for record in (zero, one):
        write_record(trace.round(record.round) / "round.json", record)
    return path


def test_tells_rounds_candidates_and_what_was_not_measured(beamsearch, tmp_path):
    run_folder(tmp_path / "run")
    done = beamsearch("show", "run")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert any(line.startswith("round 1  best r1-w0-v1 ~0.75 ms  ~4.00x") for line in lines)
    assert any("r1-w0-v0  wrong at smoke" in line for line in lines)
    assert any("no eager: no GPU" in line for line in lines)
    assert "note: No NVIDIA GPU here: true shapes were not run" in lines


def test_json_is_the_records(beamsearch, tmp_path):
    run_folder(tmp_path / "run")
    told = json.loads(beamsearch("show", "run", "--json").stdout)
    assert told["run"] == NO_GPU.model_dump(mode="json")
    assert [record["round"] for record in told["rounds"]] == [0, 1]


def test_record_that_is_damaged_is_one_line(beamsearch, tmp_path):
    run_folder(tmp_path / "run")
    (tmp_path / "run" / "run.json").write_text('{"format": 1, "problem": "43"')
    done = beamsearch("show", "run")
    assert done.returncode == 2
    assert len(done.stderr.strip().splitlines()) == 1 and "run.json" in done.stderr
