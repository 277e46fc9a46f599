"""A round is settled once its kernels are judged, before its workers have reflected."""

import io
from time import sleep
from types import SimpleNamespace

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.errors import Waiting
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.problem.problem import read_problem
from beamsearch.records.job import Comparison, JudgeJob, Judgement
from beamsearch.records.trace import Trace, read_record
from beamsearch.records.verdict import Outcome
from beamsearch.run import round as rounds
from beamsearch.run import run as runner
from beamsearch.run import settled as settle
from beamsearch.run.settled import Settled, look_closer, told_early
from beamsearch.run.stop import StopToken
from beamsearch.search.directions import Plan
from beamsearch.search.stopping import Limits
from beamsearch.search.strategies import Standing
from beamsearch.settings import Settings
from tests.cli.test_display import FLOOR, ROUND, candidate, measured
from tests.llm.runs import HIDDEN, PROBLEM, requests, response, write_lines


@pytest.mark.slow
def test_through_batch_files_nothing_but_questions_is_left_when_reflections_are_asked(
    tmp_path, monkeypatch
):
    # Given a run of two rounds, each question of which is handed over
    for name in HIDDEN:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    original, settled = rounds.settled, []

    def spy(*given):
        found = original(*given)
        settled.append(len(found.candidates))
        return found

    monkeypatch.setattr(rounds, "settled", spy)
    settings = Settings(rounds=2, workers=2, variants=1, seed=3, llm="batch")
    folder, trace = tmp_path / "run", Trace(tmp_path / "run")
    problem = read_problem(PROBLEM / "problem.py")
    seen, profiled, early = {}, {}, {}
    said = io.StringIO()
    observer = PlainDisplay(said)
    for number in range(4):
        said.truncate(0)
        if number == 2:
            where_there_is_no_gpu(monkeypatch, folder)
        with pytest.raises(Waiting):
            if number == 0:
                runner.run(problem, settings, folder, kernel=None, observer=observer)
            else:
                runner.resume(folder, observer=observer, limits={})
        asked = requests(folder)
        _, which, _, purpose, _ = asked[0]["custom_id"].rsplit("-", 4)
        seen[which, purpose] = list(settled)
        early[which, purpose] = [x for x in said.getvalue().splitlines() if "is judged" in x]
        profiled[which, purpose] = {p.stem for p in trace.profile("r0-s0").parent.glob("*")}
        write_lines(folder / f"responses-{number}.jsonl", map(response, asked))

    # Then it is settled with both workers' kernels, neither earlier nor with some of them
    assert seen["r1", "diagnosis"] == seen["r1", "variants"] == []
    assert seen["r1", "reflection"] == [2]
    # And what it came to is said then, and no more once the round itself is told
    (line,) = early.pop(("r1", "reflection"))
    assert trace.round_record(1).running_best == "r0-s0"
    still = "note: round 1 is judged, without a modelled win: the best is still r0-s0 ~"
    assert line.startswith(still) and "ms, ~1.00x over input, ~" in line
    assert not any(early.values())
    # And the kernels of the next round's questions were profiled then
    assert ("r2", "diagnosis") in seen
    parents = {a.parent for a in read_record(trace.round(2) / "plan.json", Plan).assignments}
    assert parents <= profiled["r1", "reflection"]


def test_a_win_that_is_confirmed_before_the_reflections_is_told(tmp_path):
    win = candidate(Outcome.CORRECT).with_values(measurement=measured(0.5, "a"))
    standing = Standing(win, True, win, [win.name], {"r0-s0": 1.0, "r1-w0-v1": 0.25}, [win.name])
    executor = RemoteExecutor("NVIDIA H200")
    shared = SimpleNamespace(executor=executor, floor=FLOOR, trace=Trace(tmp_path))
    before = [ROUND.with_values(round=0, running_best="r0-s0")]
    assert told_early(shared, before, Settled([win], {}, standing)) == (
        "round 1 is judged, with a win: best r1-w0-v1 0.5 ms, 4.00x over input, 1.00x the floor, "
        "and 4.00x over r0-s0, timed again beside it"
    )


@pytest.mark.parametrize(
    ("of", "time_ms", "margin", "leaves", "looked"),
    [
        (1, 0.9, 0.05, True, True),
        (1, 0.9, 0.05, False, True),
        (2, 0.9, 0.05, True, False),
        (2, 0.51, 0.05, True, True),
        (2, 0.49, 0.0, True, False),
    ],
    ids=["the last round", "one that stays", "another comes", "near the floor", "no margin"],
)
def test_the_last_look_is_taken_while_the_gpu_is_at_hand(
    monkeypatch, tmp_path, of, time_ms, margin, leaves, looked
):
    win = candidate(Outcome.CORRECT).with_values(measurement=measured(time_ms, "a"))
    standing = Standing(win, True, win, [win.name], {}, [win.name])
    seen, profiled, begun = [], [], []
    monkeypatch.setattr(settle, "next_parents", lambda *_: [win])
    monkeypatch.setattr(settle, "begin_profiles", lambda _, asked: begun.extend(asked))
    monkeypatch.setattr(settle, "look_closer", lambda _, done, best, __: seen.append(best))
    shared = SimpleNamespace(
        executor=RemoteExecutor("NVIDIA H200"),
        floor=FLOOR,
        trace=Trace(tmp_path),
        settings=SimpleNamespace(llm=SimpleNamespace(run=None)),
        profile=profiled.append,
    )
    done, limits = [ROUND.with_values(round=0)], Limits(rounds=of, floor_margin=margin)
    now = Settled([win], {win.name: win}, standing)
    settle.look_ahead(shared, None, done, now, limits, StopToken(), leaves=leaves)
    assert seen == [win] * looked
    # The round's best, without which no round is closed, and who comes next
    assert begun == [win] * (1 + (not looked))
    assert profiled == begun * leaves


@pytest.mark.parametrize("outcome", [Outcome.CORRECT, Outcome.WRONG])
def test_a_look_that_was_taken_is_not_taken_again(tmp_path, outcome):
    trace, win = Trace(tmp_path), candidate(Outcome.CORRECT)
    first = win.with_values(name="r0-s0")
    looked = candidate(outcome).verdict
    jobs = []

    def run(job):
        if isinstance(job, JudgeJob):
            jobs.append(type(job).__name__)
            time = measured(0.5, "a") if looked.correct else None
            return Judgement(verdict=looked, measurement=time)
        sleep(0.2)  # the look is over first
        jobs.append(type(job).__name__)
        times = {"winner": measured(0.5, "b"), "input": measured(1.0, "b")}
        return Comparison(measurements=times, failed={}, turns={})

    trace.kernel_source = lambda _: "source"
    shared = SimpleNamespace(
        trace=trace,
        executor=SimpleNamespace(run=run),
        settings=Settings(quick=True),
        source=trace.kernel_source,
    )
    done = [ROUND.with_values(round=0, candidates=[first])]
    for _ in range(2):
        look_closer(shared, done, win, StopToken())
    assert jobs == ["JudgeJob", "CompareJob"]
    assert trace.confirmation_file.is_file() and trace.examination(win.name).is_file()


def where_there_is_no_gpu(monkeypatch, folder):
    """A run whose next step needs a GPU leaves no questions behind: they are answered."""
    assert requests(folder)
    with monkeypatch.context() as patched:
        patched.setattr(runner, "open_executor", lambda *_, **__: RemoteExecutor("NVIDIA H200"))
        with pytest.raises(Waiting, match=r"a GPU step \(to judge 2 kernels\), .* no NVIDIA H200"):
            runner.resume(folder, observer=PlainDisplay(io.StringIO()), limits={})
    assert not requests(folder)
