"""The screen of a run holds what its records say, and fits."""

import io
import re
import shutil
import time
from dataclasses import replace

import pytest
from rich.cells import cell_len
from rich.console import Console

from beamsearch.cli.display import describe_candidate
from beamsearch.cli.live import Screen
from beamsearch.cli.screen import draw
from beamsearch.llm.costs import asked, paid, run_prices
from beamsearch.records.activity import Activity, Task
from beamsearch.records.trace import read_record, write_record, write_text
from beamsearch.run import snapshot
from beamsearch.run.snapshot import SnapshotReader
from beamsearch.search.directions import Plan
from tests import ROOT
from tests.cli.test_clean import HOSTILE
from tests.cli.under_way import before_the_end, worked_on

CLAUDE = ROOT / "artifacts" / "claude"
RUN = CLAUDE / "43_Max_Pooling_3D"
PLAYBOOK = next((ROOT / "artifacts" / "playbook").glob("77*"))
LONGEST = next(CLAUDE.glob("77*"))
WORD = "Ctrl-C ends it"


def rows(snapshot, size=(80, 24), at=None, told=()):
    """The screen's rows, as they stand in a terminal of that size."""
    text = draw(snapshot, time.time() if at is None else at, size, WORD, told)
    console = Console(width=size[0], file=None, record=True, color_system=None)
    with console.capture() as shown:
        console.print(text)
    return shown.get().splitlines()


@pytest.fixture
def trace(tmp_path):
    return before_the_end(RUN, tmp_path / "run")


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (60, 20)])
@pytest.mark.parametrize("recorded", [RUN, LONGEST], ids=["43", "77"])
def test_it_fills_the_terminal_and_wraps_nowhere(tmp_path, recorded, size):
    trace = before_the_end(recorded, tmp_path / "run")
    with worked_on(trace, doing="judging r5-w0-v0: " + "a long description " * 20):
        now = SnapshotReader(trace).read()
    shown = rows(now, size, told=[describe_candidate(c) for c in now.candidates])
    assert len(shown) == size[1] and shown[-1] == WORD
    assert all(cell_len(row) <= size[0] for row in shown)
    for row in shown:  # only words of others may be shortened
        assert "…" not in row or re.match(r"w\d |r\d|77_conv", row), row


def test_kernels_whose_descriptions_begin_alike_are_told_apart(tmp_path):
    trace = before_the_end(PLAYBOOK, tmp_path / "run")
    for later in trace.completed_rounds()[2:]:
        shutil.rmtree(trace.round(later.round) / "workers")
        for path in trace.round(later.round).glob("*.json"):
            if path.name != "plan.json" or later.round > 2:
                path.unlink()
    alike = trace.round_record(1).candidates
    texts = {candidate.description for candidate in alike}
    assert len({text[:70] for text in texts}) < len(texts) == len(alike)
    with worked_on(trace):
        shown = Screen(Console(width=80, height=40, file=io.StringIO()), trace, WORD).drawn().plain
    lines = [line for line in shown.splitlines() if re.match(r"r1-w\d-v\d  ", line)]
    told = {re.sub(r"^.*?\(", "", line) for line in lines}
    assert all(cell_len(line) <= 80 for line in lines) and len(told) == len(lines) == len(texts)


def test_it_says_what_the_records_say(trace):
    with worked_on(trace) as activity:
        now = SnapshotReader(trace).read()
    text = "\n".join(rows(now, at=activity.started + 640))
    record, plan = now.record, now.plan
    best = record.rounds[-1]
    assert record.problem in text and record.environment.gpu in text
    # 600 s for four rounds, and 40 s of the fifth and last
    assert f"round 5 of {record.settings.rounds}, 10:40 so far, about 1:50 left" in text
    time_of_best = best.best_time
    spread = f"[{time_of_best.p20_ms:.4g}, {time_of_best.p80_ms:.4g}]"
    floor = time_of_best.time_ms / record.floor.time_ms
    assert f"{best.best}  {time_of_best} {spread}, {floor:.2f}x the floor" in text
    assert f"{best.speedup:.2f}x over input" in text and "x over torch.compile" in text
    for a in plan:
        row = rf"w{a.worker} +{a.parent} +{re.escape(str(a.direction))} +\d:\d\d +judging a kernel"
        assert re.search(row, text), row
    assert len(plan) == record.settings.workers


def test_verdicts_tokens_and_cost_are_those_of_the_records(tmp_path):
    trace = before_the_end(LONGEST, tmp_path / "run")
    recorded = trace.completed_rounds()
    with worked_on(trace):
        now = SnapshotReader(trace).read()
    text = "\n".join(rows(now))
    outcomes = [c.verdict.outcome.value for r in recorded[1:] for c in r.candidates]
    outcomes += [c.verdict.outcome.value for c in now.under_way]
    assert now.under_way and f"{len(outcomes)} candidates: " in text
    assert f"{outcomes.count('correct')} correct" in text
    assert f"{outcomes.count('wrong')} wrong" in text and "wrong" in outcomes
    total = paid(trace, run_prices(trace, None), {}).total
    assert total.calls == len(asked(trace))
    assert now.paid.model_copy(update={"wins": total.wins}) == total
    assert f"{total.calls} calls, {total.tokens_in:,} tokens in" in text
    assert f"{total.tokens_out:,} out" in text and not total.cost and "no cost" not in text


def test_the_curve_has_a_bar_a_round(trace):
    with worked_on(trace):
        now = SnapshotReader(trace).read()
    (row,) = (row for row in rows(now) if "by round" in row)
    bars = row.split()[0]
    speedups = [line.speedup for line in now.record.rounds]
    assert len(bars) == len(speedups) and bars[0] == "▁" and bars[-1] == "█"
    assert f"1.00x to {speedups[-1]:.2f}x over input" in row
    many = now.record.with_values(rounds=[now.record.rounds[0], *now.record.rounds[1:] * 60])
    (row,) = (row for row in rows(replace(now, record=many)) if "by round" in row)
    assert cell_len(row) <= 80


def test_a_candidate_that_seems_faster_is_told_before_it_is_confirmed(trace):
    with worked_on(trace):
        now = SnapshotReader(trace).read()
    fast = now.under_way[0]
    best = now.record.rounds[-1].best_time
    ahead = best.model_copy(update={"time_ms": best.time_ms / 2})
    under_way = [fast.model_copy(update={"measurement": ahead})]
    text = "\n".join(rows(replace(now, under_way=under_way)))
    assert f"{fast.name}  {ahead}, 2.00x over it; not confirmed yet" in text
    other_visit = ahead.model_copy(update={"visit": "another"})
    under_way = [fast.model_copy(update={"measurement": other_visit})]
    assert "not confirmed" not in "\n".join(rows(replace(now, under_way=under_way)))


@pytest.mark.parametrize("count", [8, 64])
def test_eight_workers_are_all_shown_and_of_more_it_says_how_many(trace, count):
    with worked_on(trace) as activity:
        now = SnapshotReader(trace).read()
    number, plan = next(iter(now.plans.items()))
    plan = [plan[0].with_values(worker=worker) for worker in range(count)]
    own = {"round": number, "doing": "x", "since": activity.started}
    tasks = [Task(worker=worker, **own) for worker in range(count)]
    many = {"plans": {number: plan}, "activity": activity.with_values(tasks=tasks)}
    shown = rows(replace(now, **many), told=["a candidate"] * 30)
    workers = [row for row in shown if re.match(r"w\d+ ", row)]
    assert len(shown) == 24 and shown[-1] == WORD
    if count == 8:
        assert len(workers) == 8
    else:
        assert f"and {count - len(workers)} more workers" in shown


def test_workers_of_rounds_that_overlap_have_a_row_each(trace):
    number = len(trace.completed_rounds())
    plan = read_record(trace.round(number) / "plan.json", Plan)
    write_record(trace.round(number + 1) / "plan.json", plan)
    with worked_on(trace, doing="judging one") as activity:
        late = activity.turned_to(number + 1, 0, "judging another", activity.started)
        write_record(trace.activity_file, late)
        shown = rows(SnapshotReader(trace).read())
    assert sum(row.startswith(f"r{number}-w") for row in shown) == len(plan.assignments)
    assert sum(row.startswith(f"r{number + 1}-w") for row in shown) == len(plan.assignments)
    assert any(row.startswith(f"r{number + 1}-w0") and "judging another" in row for row in shown)
    ended = late.round_ended(number)
    assert [(task.round, task.doing) for task in ended.tasks] == [(number + 1, "judging another")]
    assert ended.round_started(activity.started).tasks == ended.tasks


def test_hostile_text_changes_no_row_but_its_own(trace):
    record = trace.run_record()
    hostile = record.with_values(problem=HOSTILE, who_thinks=HOSTILE)
    write_record(trace.run_file, hostile)
    with worked_on(trace, doing=HOSTILE):
        now = SnapshotReader(trace).read()
    shown = rows(now, told=[HOSTILE] * 3)
    assert len(shown) == 24 and shown[-1] == WORD
    assert all(cell_len(row) <= 80 and row.isprintable() for row in shown)
    assert shown[0].startswith("<b>[red]red[/red]")


def test_time_left_goes_by_whole_rounds_and_the_limit_by_every_process():
    begun = Activity(started=1000.0, seconds_before=500.0)
    assert begun.round_ended(1).left_s(1010.0, 3, None) is None  # where a run that goes on stands
    rest = begun.round_started(1005.0).round_ended(1)  # of a round that an earlier process began
    assert rest.left_s(1010.0, 2, None) is None
    one = rest.round_started(1010.0).round_ended(2).round_started(1110.0)
    first = Activity(started=1000.0).round_started(1005.0).round_ended(1)
    assert first.left_s(1010.0, 2, None) == 10.0
    assert one.elapsed_s(1110.0) == 610.0
    assert one.left_s(1110.0, 2, None) == 200.0
    assert one.left_s(1150.0, 2, None) == 160.0
    assert one.left_s(1400.0, 2, None) == 100.0  # the round under way takes longer than others
    assert one.left_s(1150.0, 2, 700.0) == 50.0


def test_what_did_not_change_is_not_read_again(trace, monkeypatch):
    read = []
    original = snapshot.read_record
    monkeypatch.setattr(
        snapshot, "read_record", lambda p, kind: read.append(p) or original(p, kind)
    )
    with worked_on(trace):
        reader = SnapshotReader(trace)
        first = reader.read()
        assert len(read) > len(first.rounds) + len(first.under_way)
        read.clear()
        assert reader.read() == first
        assert read == [trace.activity_file]
        path = trace.folder / "optimization_trace/round_5/workers/w0/r5-w0-v0.json"
        write_text(path, path.read_text())
        read.clear()
        reader.read()
        assert read == [trace.activity_file, path]
