"""How a run begins in a folder, who thinks in it from then on, and what of an answer is kept."""

import json
import sys

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.errors import Stopped, UsageError
from beamsearch.gpu.machine import modelled
from beamsearch.problem.problem import read_problem
from beamsearch.proposer.questions import Reply
from beamsearch.records.baselines import Baselines
from beamsearch.records.call import Call
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import Trace, read_record, write_record, write_text
from beamsearch.run import run as runner
from beamsearch.run.ask import Answers
from beamsearch.run.lock import folder_lock
from beamsearch.run.stop import StopToken
from beamsearch.settings import Settings
from tests.llm.runs import PROBLEM, beamsearch
from tests.proposer.situations import diagnosis_question

SEVEN, EIGHT = (Settings(seed=seed, llm="playbook") for seed in (7, 8))


def test_a_reply_that_comes_while_the_run_stops_is_kept(tmp_path):
    stopping = StopToken()
    asked = []

    class Slow:
        """Answers once, and only when the run is being stopped."""

        name, reads_prompts = "slow", True

        def answer(self, question, prompt):
            asked.append(prompt)
            stopping.set()
            return Reply(text="it took an hour", author="slow", model="slow", tokens_out=9)

    question, stems = diagnosis_question(), ("bottleneck_prompt", "bottleneck_response")
    answers = Answers(Trace(tmp_path), tmp_path / "w0", Slow(), stopping)
    with pytest.raises(Stopped):
        answers.get(question, "why?", 0, stems)
    answers = Answers(Trace(tmp_path), tmp_path / "w0", Slow(), StopToken())
    assert answers.get(question, "why?", 0, stems) == "it took an hour"
    assert asked == ["why?"]
    (call,) = (tmp_path / "w0" / "calls").iterdir()
    assert read_record(call, Call).tokens_out == 9


@pytest.fixture
def begun(tmp_path):
    """A run in round 0, of which nothing is done that took long."""
    trace = Trace(tmp_path / "run")
    problem = read_problem(PROBLEM / "problem.py")
    write_text(trace.problem_file, problem.source)
    write_text(trace.input_file, (PROBLEM / "input_kernel.py").read_text())
    record = RunRecord(
        problem=problem.name,
        problem_dtype=problem.dtype,
        settings=SEVEN,
        environment=modelled().environment(),
        who_thinks="playbook",
        status="running",
        baselines=Baselines(),
    )
    write_record(trace.run_file, record)
    write_text(trace.round(0) / "r0-s0.py", "half way")
    return trace, problem


def again(begun):
    trace, problem = begun
    runner.run(problem, EIGHT, trace.folder, kernel=None, observer=PlainDisplay(sys.stderr))


def test_a_folder_in_which_another_process_works_is_left_alone(begun):
    trace, _ = begun
    with folder_lock(trace.folder), pytest.raises(UsageError, match="another process"):
        again(begun)
    assert trace.run_record().settings.seed == 7 and (trace.round(0) / "r0-s0.py").is_file()


@pytest.mark.parametrize(
    "paid",
    ["responses-1.jsonl", "requests.jsonl", "optimization_trace/round_0/workers/w0/calls/a.json"],
)
def test_what_was_paid_for_is_not_removed_for_other_settings(begun, paid):
    trace, _ = begun
    write_text(trace.folder / paid, "{}\n")
    with pytest.raises(UsageError, match="seed: 7 there, 8 asked.*--output"):
        again(begun)
    assert trace.run_record().settings.seed == 7 and (trace.folder / paid).is_file()


def test_a_kill_before_the_record_is_written_leaves_a_folder_that_can_be_begun_in(tmp_path):
    trace = Trace(tmp_path / "run")
    assert trace.barely_begun()
    write_text(trace.problem_file, "anything")
    assert not trace.barely_begun(), "somebody's own folder with a problem"
    (trace.folder / ".lock").touch()
    assert trace.barely_begun()


@pytest.mark.slow
def test_who_thinks_is_decided_once(tmp_path):
    """A run that the playbook began pays nobody later; one that a model began has no other end."""
    folder = tmp_path / "run"
    small = ["--workers", 1, "--variants", 1, "--output", folder]
    beamsearch("run", PROBLEM, *small, "--rounds", 1)
    settings = json.loads((folder / "run.json").read_text())["settings"]
    assert settings["llm"] == "playbook"

    # Stopped before the reflection was kept: whoever thinks is asked for it again.
    trace = Trace(folder)
    (trace.round(1) / "round.json").unlink()
    (trace.worker(1, 0) / "benchmark_results.json").unlink()
    (trace.worker(1, 0) / "reflexion.txt").unlink()
    nobody = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": "http://127.0.0.1:9/v1"}
    beamsearch("run", PROBLEM, *small, "--rounds", 1, **nobody)
    assert (trace.worker(1, 0) / "reflexion.txt").is_file()

    record = json.loads((folder / "run.json").read_text())
    for llm in ("openai", "auto"):
        changed = {"settings": record["settings"] | {"llm": llm}, "who_thinks": "gpt-5.5"}
        (folder / "run.json").write_text(json.dumps(record | changed))
        told = beamsearch("resume", folder, "--rounds", 3, code=4).stderr
        assert "gpt-5.5 thinks in this run" in told and "OPENAI_API_KEY" in told
