"""Simulated lanes: what can be computed by hand comes out so; job times are the records'."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tools.lane_study.engine import NO_JOB, Account, Hold, Pause, Pool, Simulation, Until
from tools.lane_study.recorded import CLAUDE, Recorded, Sweep, WorkersRound, recorded_runs
from tools.lane_study.runs import Schedule, World
from tools.lane_study.study import one_problem, suite

ROOT = Path(__file__).resolve().parent.parent.parent
WORKER = WorkersRound(
    repairs=(0, 0),
    sweep=None,
    tuned=0,
    profiles=1,
    tokens={"diagnosis": 60, "variants": 120, "reflection": 60},
)
TOY = Recorded(
    name="toy",
    workers=1,
    judge_s=3,
    profile_s=5,
    sweep_s=2,
    subject_s=1,
    prepare_s=1,
    start_s=10,
    idle_compile_s=0,
    sweeps=(Sweep(compile_s=7, forms=1, factor=1),),
    rounds=((WORKER,),),
    confirms=(True,),
    busy_s={"judging": 1},
    jobs={},
)
AT_ONCE = World()


@pytest.fixture(scope="module")
def recorded() -> list[Recorded]:
    return recorded_runs()


class Lanes:
    """Some lanes in a simulation that has not begun."""

    def __init__(self, lanes: int) -> None:
        self.simulation, self.pool = Simulation(), Pool(lanes, lanes=True)
        self.account = Account(lanes)

    def begin(self, *steps):
        return self.simulation.begin(iter(steps), self.account)

    def job(self, seconds: float, what: str = "judging") -> Hold:
        return Hold(self.pool, seconds, what)

    def end(self) -> float:
        seconds = self.simulation.run()
        self.account.book(seconds)
        return seconds


def kept(seconds) -> dict[str, float]:
    return {what: value for what, value in seconds.items() if value}


@pytest.mark.parametrize(
    ("lanes", "end", "idle"), [(1, 40, 0), (2, 20, 0), (3, 20, 20), (4, 10, 0)]
)
def test_four_equal_jobs(lanes, end, idle):
    case = Lanes(lanes)
    for _ in range(4):
        case.begin(case.job(10))
    assert case.end() == end
    assert kept(case.account.busy_s) == {"judging": 40}
    assert kept(case.account.idle_s) == ({NO_JOB: idle} if idle else {})


def test_whoever_asked_first_has_the_lane_first():
    case, order = Lanes(1), []

    def one(name, seconds):
        yield case.job(seconds)
        order.append((name, case.simulation.now))

    for name, seconds in (("long", 5), ("short", 1), ("last", 2)):
        case.simulation.begin(one(name, seconds), case.account)
    case.end()
    assert order == [("long", 5), ("short", 6), ("last", 8)]


def test_behind_a_barrier_nobody_goes_on_before_the_last():
    case = Lanes(2)
    workers = [case.begin(case.job(10)), case.begin(case.job(30))]
    case.begin(Until(workers), case.job(5, "comparing"))
    assert case.end() == 35
    assert kept(case.account.busy_s) == {"judging": 40, "comparing": 5}
    assert kept(case.account.idle_s) == {NO_JOB: 25}


def test_one_runs_wait_hides_behind_anothers_job():
    alone = Lanes(1)
    alone.begin(Pause(10, "model"), alone.job(10))
    assert alone.end() == 20
    assert kept(alone.account.idle_s) == {"model": 10}
    both = Lanes(1)
    both.begin(Pause(10, "model"), both.job(10))
    both.begin(both.job(10), Pause(10, "model"))
    assert both.end() == 20
    assert kept(both.account.idle_s) == {}


def test_two_lanes_that_wait_for_one_compilation_are_not_both_put_down_to_it():
    case = Lanes(2)
    case.begin(Pause(10, "compilation"))
    case.end()
    assert kept(case.account.idle_s) == {"compilation": 10, NO_JOB: 10}


def toy(lanes, recorded=TOY, *, workers=1, rounds=1, schedule=None, world=AT_ONCE):
    """One run of one round of the toy: its seconds, its account."""
    from tools.lane_study.runs import Machine, Run, Search

    simulation, machine = Simulation(), Machine(lanes)
    run = Run(
        *(simulation, machine, recorded, [recorded]),
        search=Search(workers=workers, rounds=rounds),
        world=world,
        seed="0",
        schedule=schedule or Schedule(),
    )
    simulation.begin(run.process(), machine.account)
    seconds = simulation.run()
    machine.account.book(seconds)
    return seconds, run, machine.account


def test_a_run_of_one_worker_takes_what_its_steps_take():
    # start 10, prepared 2, first kernel 3, baselines 4, profile 5, compilation 7, two variants 6,
    # profile 5, confirmation 2, last look 3, last comparison 5
    seconds, run, account = toy(1)
    assert (seconds, run.candidates, run.rounds_s) == (52, 2, 29)
    assert kept(account.idle_s) == {"start": 10, "compilation": 7}
    assert kept(account.busy_s) == {
        **{"preparing": 2, "judging": 3 + 6 + 3, "comparing": 4 + 2 + 5, "profiling": 10}
    }
    # Two lanes: the baselines beside the first profile save 4; of the last profile, look and
    # comparison, 13, one has 5 and the other 3 and 5.
    assert toy(2)[0] == 52 - 4 - 5
    # Both variants at once save one's 3.
    assert toy(2, schedule=Schedule(variants_apart=True))[0] == 43 - 3
    # A model's 60, 120 and 60 tokens at 60 a second: the lane waits for all but the last.
    seconds, _, account = toy(1, world=World(tokens_per_s=60))
    assert seconds == 55
    assert kept(account.idle_s) == {"start": 10, "compilation": 7, "model": 3}


def test_a_repair_and_a_sweep_add_their_steps():
    repaired = replace(WORKER, repairs=(1, 0))
    # The repair is compiled, 7, and judged, 3.
    assert toy(1, replace(TOY, rounds=((repaired,),)))[0] == 52 + 7 + 3
    swept = replace(WORKER, sweep=Sweep(compile_s=20, forms=8, factor=1), tuned=1)
    # The sweep is compiled, 20, and timed, 2; its form is compiled, 7, and judged, 3.
    seconds, run, account = toy(1, replace(TOY, rounds=((swept,),)))
    assert (seconds, run.candidates) == (52 + 20 + 2 + 7 + 3, 3)
    assert account.busy_s["tuning"] == 2
    # Thirteen forms on twelve cores would take twice as long; a sweep's time was recorded so.
    many = replace(swept, sweep=Sweep(compile_s=20, forms=13, factor=1))
    assert toy(1, replace(TOY, rounds=((many,),)))[0] == seconds


def test_cores_are_shared():
    # Four workers' eight candidates need 32 cores at once where one lane has 12: three fit at a
    # time. Two lanes have 24, so that six do.
    still = replace(TOY, judge_s=0, profile_s=0, subject_s=0, prepare_s=0)
    assert toy(1, still, workers=4)[0] == 10 + 3 * 7
    assert toy(2, still, workers=4)[0] == 10 + 2 * 7


def test_a_rounds_end_waits_for_its_slowest_worker_and_the_next_for_that():
    once, _, _ = toy(8, workers=2)
    twice, _, account = toy(8, workers=2, rounds=2)
    # Lanes enough for all: the second round takes a compilation, two judgements, a profile and the
    # confirmation; the first kernel is profiled, and the baselines timed, once.
    assert twice - once == 7 + 6 + 5 + 2
    assert account.idle_s["round's end"] > 0
    # The round ahead begins with the first one: its confirmation comes on top, and the profile for
    # the first one's reflection, which is no longer beside the last look.
    ahead, _, _ = toy(8, workers=2, rounds=2, schedule=Schedule(rounds_ahead=1))
    assert ahead - once == 2 + 5
    # Without waiting for reflections the first round saves its profile; the last one's goes on
    # beside the last look anyway.
    beside, _, _ = toy(8, workers=2, rounds=2, schedule=Schedule(reflection_apart=True))
    assert twice - beside == 5


def test_lessons_come_one_round_later_and_no_more():
    # A reflection takes 5 for its profile and 100 for its answer.
    slow = replace(TOY, rounds=((replace(WORKER, tokens={"reflection": 100}),),))
    apart = Schedule(reflection_apart=True)
    world = World(tokens_per_s=1)
    spans = [toy(8, slow, rounds=n, schedule=apart, world=world)[1].rounds_s for n in (1, 2, 3)]
    # Profile, compilation, two judgements and, behind the round's end, the reflection.
    assert spans[0] == 5 + 7 + 6 + 105
    # The second round begins at that end, 20; the third only when the first one's is there.
    assert spans[1] == 20 + 7 + 6 + 105
    assert spans[2] == spans[0] + 7 + 6 + 105


def test_a_suite_on_one_lane_hides_what_needs_no_lane():
    one = suite([TOY], 1, world=AT_ONCE, seeds=1, problems=6, runs_a_lane=1)
    two = suite([TOY], 1, world=AT_ONCE, seeds=1, problems=6, runs_a_lane=2)
    assert one.candidates == two.candidates
    assert one.busy_s == two.busy_s
    assert two.seconds < one.seconds
    assert two.seconds >= sum(two.busy_s.values())
    # As many lanes as runs: each ends as it would alone, and the longest is the suite's end.
    all_at_once = suite([TOY], 6, world=AT_ONCE, seeds=1, problems=6, runs_a_lane=1)
    assert all_at_once.seconds < one.seconds / 3
    assert all_at_once.busy_s == one.busy_s


def test_more_lanes_do_the_same_work_and_never_more_an_hour_than_lanes(recorded):
    found = [
        one_problem(recorded[:3], lanes, workers=8, world=AT_ONCE, seeds=1)
        for lanes in (1, 2, 4, 8)
    ]
    for lanes, one in zip((1, 2, 4, 8), found, strict=True):
        assert one.candidates == found[0].candidates
        assert one.busy_s["judging"] == pytest.approx(found[0].busy_s["judging"])
        assert one.busy_s["profiling"] == pytest.approx(found[0].busy_s["profiling"])
        assert one.an_hour <= lanes * found[0].an_hour
        whole = sum(one.busy_s.values()) + sum(one.idle_s.values())
        assert whole == pytest.approx(lanes * one.seconds)
    rates = [one.an_hour for one in found]
    assert rates == sorted(rates)
    again = one_problem(recorded[:3], 4, workers=8, world=AT_ONCE, seeds=1)
    assert again == found[2]
    assert again != one_problem(recorded[:3], 4, workers=8, world=AT_ONCE, seeds=2)


def test_no_schedule_changes_the_work(recorded):
    everything = Schedule(True, True, True, True, rounds_ahead=1)
    now, then = (
        one_problem(recorded[:3], 4, workers=8, schedule=schedule, world=AT_ONCE, seeds=1)
        for schedule in (Schedule(), everything)
    )
    assert now.candidates == then.candidates
    assert {what: pytest.approx(s) for what, s in now.busy_s.items()} == then.busy_s
    assert then.an_hour > now.an_hour


def test_the_job_times_are_those_of_the_records(recorded):
    assert [one.workers for one in recorded] == [4] * 3 + [2] * 6
    for one, folder in zip(recorded, sorted(CLAUDE.iterdir()), strict=False):
        totals = json.loads((folder / "run.json").read_text())["totals"]
        busy = totals["lane"]["busy_s"]
        assert one.candidates == totals["candidates"]
        assert one.judge_s * one.jobs["judging"] == pytest.approx(busy["judging"] + busy["timing"])
        assert one.profile_s * one.jobs["profiling"] == pytest.approx(busy["profiling"])
        assert one.subject_s * one.jobs["comparing"] == pytest.approx(busy["comparing"])
        assert one.sweep_s * one.jobs["tuning"] == pytest.approx(busy["tuning"])
        assert len(one.sweeps) == totals["tuning"]["sweeps"]
        # Every sweep's own seconds are its compilation and the lane's mean.
        seconds = sum(sweep.compile_s + one.sweep_s for sweep in one.sweeps)
        assert seconds == pytest.approx(totals["tuning"]["seconds"], rel=0.02)
        assert sum(sweep.factor for sweep in one.sweeps) == pytest.approx(len(one.sweeps))
        assert len(one.rounds) == len(one.confirms)
        assert all(worker.tokens["variants"] > 500 for workers in one.rounds for worker in workers)
    # A variant of 77 was wrong, and one of 82 timed out: each has its repair. By hand from 77's
    # round 1: four workers, each with a sweep, and one judged form.
    _, second, third = recorded[:3]
    for one in (second, third):
        assert sum(sum(w.repairs) for workers in one.rounds for w in workers) == 1
    # 77 again: 26 candidates and the first kernel had the lane, and its winner once more. Subjects
    # compared: four for the baselines, five at the end, two a confirmation, one a later visit.
    assert second.jobs == {
        **{"judging": 26 + 1 + 1, "profiling": 13, "tuning": 8, "comparing": 4 + 5 + 2 * 2 + 7},
        **{"preparing": 8, "start": 11},
    }
    assert [(w.sweep is not None, w.tuned) for w in second.rounds[0]] == [
        (True, 0),
        (True, 1),
        (True, 0),
        (True, 0),
    ]


@pytest.mark.slow
def test_the_command_prints_its_tables_and_draws(tmp_path):
    picture = tmp_path / "lanes.svg"
    words = ["-m", "tools.lane_study", "--seeds", "1", "--problems", "4", "--out", str(picture)]
    done = subprocess.run(
        [sys.executable, *words], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stderr
    for title in ("One problem, 8 workers", "A suite, cheapest first", "One problem on 4 lanes"):
        assert title in done.stdout
    assert ElementTree.parse(picture).getroot().tag.endswith("svg")
    wrong = subprocess.run(
        [sys.executable, *words[:-1], "lanes.txt"], cwd=ROOT, capture_output=True, text=True
    )
    assert wrong.returncode == 2 and ".svg or .png" in wrong.stderr
