"""Which kernel a run ends with, and its time beside the baselines."""

from types import SimpleNamespace

from beamsearch.records.job import Comparison, JudgeJob, Judgement
from beamsearch.records.run import Confirmation
from beamsearch.records.trace import Trace, read_record
from beamsearch.records.verdict import Outcome
from beamsearch.run import winner
from beamsearch.run.stop import StopToken
from tests.cli.test_display import ROUND, candidate, measured


def test_the_next_best_is_timed_where_the_best_fails_a_closer_look(tmp_path, monkeypatch):
    trace, right = Trace(tmp_path), candidate(Outcome.CORRECT)
    names = ["r0-s0", "r1-w0-v0", "r1-w1-v0"]
    times = dict(zip(names, [2.0, 0.5, 0.6], strict=True))
    fields = {"candidates": [right.with_values(name=n) for n in names], "running_best": names[1]}
    trace.completed_rounds = lambda: [ROUND.with_values(**fields)]
    trace.kernel_source = lambda one: f"source of {one.name}"
    monkeypatch.setattr(winner, "comparable_times", lambda *_: times)
    wrong = right.verdict.with_values(outcome=Outcome.WRONG, reason="off at 3", checks=[])
    timed = []

    def run(job):
        if isinstance(job, JudgeJob):
            best = job.subject.name == names[1]
            return Judgement(verdict=wrong if best else right.verdict, measurement=None)
        timed.append(job.subjects[0].source)
        found = {"winner": measured(0.5, "b"), "input": measured(2.0, "b")}
        return Comparison(measurements=found, failed={}, turns={})

    executor = SimpleNamespace(run=run, measures=True)
    ended = winner.confirmed_winner(trace, executor, "first", StopToken(), quick=True)
    best, confirmation, (note,) = ended
    assert best.name == names[2] == confirmation.name
    assert read_record(trace.confirmation_file, Confirmation).name == names[2]
    assert timed == [f"source of {name}" for name in names[1:]], "the first beside its closer look"
    assert note.startswith("r1-w0-v0 fails a closer look") and "off at 3" in note
    executor = SimpleNamespace(run=run, measures=False)
    assert winner.confirmed_winner(trace, executor, "first", StopToken(), quick=True)[1] is None
