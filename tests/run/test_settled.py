"""A round is settled once its kernels are judged, before its workers have reflected."""

import io

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.errors import Waiting
from beamsearch.problem.problem import read_problem
from beamsearch.records.trace import Trace, read_record
from beamsearch.run import round as rounds
from beamsearch.run import run as runner
from beamsearch.search import Plan
from beamsearch.settings import Settings
from tests.llm.runs import HIDDEN, PROBLEM, requests, response, write_lines


@pytest.mark.slow
def test_through_batch_files_nothing_but_questions_is_left_when_reflections_are_asked(
    tmp_path, monkeypatch
):
    # Given a run of two rounds, each question of which is handed over
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    settle, settled = rounds.settled, []

    def spy(*given):
        found = settle(*given)
        settled.append(len(found.candidates))
        return found

    monkeypatch.setattr(rounds, "settled", spy)
    settings = Settings(rounds=2, workers=2, variants=1, seed=3, llm="batch")
    folder, trace = tmp_path / "run", Trace(tmp_path / "run")
    problem = read_problem(PROBLEM / "problem.py")
    seen, profiled = {}, {}
    observer = PlainDisplay(io.StringIO())
    for number in range(4):
        with pytest.raises(Waiting):
            if number == 0:
                runner.run(problem, settings, folder, kernel=None, observer=observer)
            else:
                runner.resume(folder, observer=observer, limits={})
        asked = requests(folder)
        _, which, _, purpose, _ = asked[0]["custom_id"].rsplit("-", 4)
        seen[which, purpose] = list(settled)
        profiled[which, purpose] = {p.stem for p in trace.profile("r0-s0").parent.glob("*")}
        write_lines(folder / f"responses-{number}.jsonl", map(response, asked))

    # Then it is settled with both workers' kernels, neither earlier nor with some of them
    assert seen["r1", "diagnosis"] == seen["r1", "variants"] == []
    assert seen["r1", "reflection"] == [2]
    # And the kernels of the next round's questions were profiled then
    assert ("r2", "diagnosis") in seen
    parents = {a.parent for a in read_record(trace.round(2) / "plan.json", Plan).assignments}
    assert parents <= profiled["r1", "reflection"]
