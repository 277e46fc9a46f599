"""Rounds that overlap: each sees what had ended when it was begun, and however the run is stopped,
it ends alike."""

import io
import os
import random
import re
import signal
import time

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.errors import UsageError, Waiting
from beamsearch.problem.problem import read_problem
from beamsearch.records.trace import Trace, read_record
from beamsearch.run.run import run
from beamsearch.search.directions import Plan
from beamsearch.settings import Settings, read_settings
from tests.llm.runs import PROBLEM as DOUBLING
from tests.llm.runs import beamsearch, requests, response, write_lines
from tests.run.test_resume import PROBLEM, finish, start
from tests.traces import differences

SMALL = "--rounds 3 --variants 1 --tune 0 --floor-margin 0"
OPTIONS = f"{SMALL} --workers 2 --beam 2 --seed 7 --llm playbook".split()


def round_of(request):
    return int(re.search(r"[-_]r(\d+)[-_]w", request["custom_id"])[1])


class Order(PlainDisplay):
    """What began and ended, in order."""

    def __init__(self):
        super().__init__(io.StringIO())
        self.seen = []

    def round_started(self, round, plan):
        self.seen.append(("begins", round))

    def round_ended(self, record, run):
        self.seen.append(("ends", record.round))


@pytest.fixture(scope="module", params=[1, 2])
def overlapped(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("overlapped") / "run"
    order = Order()
    settings = Settings(
        rounds=3, workers=2, variants=1, beam=2, seed=7, tune=0, floor_margin=0,
        overlap=request.param, llm="playbook",
    )  # fmt: skip
    begun = time.monotonic()
    run(read_problem(PROBLEM / "problem.py"), settings, folder, kernel=None, observer=order)
    return folder, order.seen, time.monotonic() - begun, request.param


@pytest.mark.slow
def test_a_round_begins_beside_those_before_it_and_sees_only_what_had_ended(overlapped):
    folder, seen, _, ahead = overlapped
    for number in (1, 2, 3):
        began, can_see = seen.index(("begins", number)), max(0, number - 1 - ahead)
        assert seen.index(("ends", can_see)) < began < seen.index(("ends", can_see + 1)), number
    assert [n for what, n in seen if what == "ends"][-3:] == [1, 2, 3]
    trace = Trace(folder)
    plans = {n: read_record(trace.round(n) / "plan.json", Plan) for n in (1, 2, 3)}
    for number, plan in plans.items():
        rounds = {int(a.parent[1 : a.parent.index("-")]) for a in plan.assignments}
        assert max(rounds) <= max(0, number - 1 - ahead), number
    # From one kernel, the second round goes where the first one does not.
    first, second = ([a.direction for a in plans[n].assignments] for n in (1, 2))
    assert not set(map(str, first)) & set(map(str, second))


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_run_with_overlapping_rounds_ends_like_the_undisturbed_one(overlapped, tmp_path):
    folder, _, seconds, ahead = overlapped
    again = tmp_path / "killed"
    new = ["run", PROBLEM, *OPTIONS, "--overlap", str(ahead), "--output", again]
    process = start(new)
    time.sleep(random.Random(5).uniform(0.5, 0.8) * seconds + 1)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    begun = (again / "run.json").is_file()
    code, output = finish(["resume", again] if begun else new)
    assert code == 0, output
    assert differences(folder, again) == []


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [1, 2])
def test_a_run_that_ends_early_ends_the_rounds_that_were_begun(tmp_path, ahead):
    order = Order()
    settings = Settings(
        rounds=5, workers=1, variants=1, seed=7, tune=0, patience=1, floor_margin=0.9,
        overlap=ahead, llm="playbook",
    )  # fmt: skip
    record = run(
        read_problem(PROBLEM / "problem.py"),
        settings,
        tmp_path / "run",
        kernel=None,
        observer=order,
    )
    begun = {n for what, n in order.seen if what == "begins"}
    assert begun == {n for what, n in order.seen if what == "ends"} - {0}
    assert record.status == "finished" and max(begun) < 5, record.stop_reason


def test_a_choice_by_what_was_won_does_not_overlap():
    with pytest.raises(UsageError, match="leave one of them out"):
        read_settings(None, {"overlap": 1, "model_choice": "bandit", "llm": "openai"})


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("ahead", [1, 2])
def test_questions_of_these_rounds_go_out_together_and_their_answers_end_the_run(tmp_path, ahead):
    folder = tmp_path / "run"
    given = [*SMALL.split(), "--workers", "1", "--seed", "3", "--llm", "batch", "--output", folder]
    given += ["--overlap", str(ahead)]
    beamsearch("run", DOUBLING, *given, code=Waiting.exit_code)
    asked = []
    for hand_over in range(1, 20):
        asked.append({round_of(request) for request in requests(folder)})
        write_lines(folder / f"responses-{hand_over}.jsonl", map(response, requests(folder)))
        done = beamsearch("resume", folder, code=None)
        if done.returncode != Waiting.exit_code:
            break
    assert done.returncode == 0, done.stdout + done.stderr
    assert asked[0] == set(range(1, 2 + ahead))
    assert all(max(rounds) - min(rounds) <= ahead for rounds in asked), asked
    assert len(Trace(folder).completed_rounds()) == 4
