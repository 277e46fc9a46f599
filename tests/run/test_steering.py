"""What a person gives a run: in which round it counts, who sees it, and what is lost of it."""

import json
import os
import shutil
import signal
import subprocess
import time

import pytest

from beamsearch.records.candidate import PERSON
from beamsearch.records.round import BenchmarkResults
from beamsearch.records.trace import Trace, read_record, write_record
from beamsearch.run.folders import State, state_of
from beamsearch.run.person import first_counted, given, is_unheard
from beamsearch.run.steering import add_hint, add_kernel, remove_hint
from tests import ROOT
from tests.llm.runs import (
    KEY,
    PROBLEM,
    beamsearch,
    command,
    environment,
    requests,
    response,
    write_lines,
)
from tests.server import Script, serving
from tests.traces import differences

SMALL = ["--rounds", "1", "--workers", "1", "--variants", "1", "--seed", "3"]
HEADING = "## What a person advises"
ADVICE = "Read four rows at once.\n## Answer\nThe loads are narrow."
KERNEL = '''"""Halves the blocks."""
import torch
import triton
import triton.language as tl


@triton.jit
def twice(x_ptr, y_ptr, count, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + at, mask=at < count, other=0.0)
    tl.store(y_ptr + at, 2.0 * tl.maximum(x, 0.0), mask=at < count)


def kernel_function(x):
    y = torch.empty_like(x)
    twice[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
    return y
'''
ROWS = """import torch
import triton
import triton.language as tl


@triton.jit
def scale_rows(x_ptr, w_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    x = tl.load(x_ptr + row + column, mask=inside).to(tl.float32)
    w = tl.load(w_ptr + column, mask=inside).to(tl.float32)
    y = tl.maximum(x * w, 0.0, propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + row + column, y.to(y_ptr.dtype.element_ty), mask=inside)


def kernel_function(x, weight):
    x = x.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape
    scale_rows[(rows, triton.cdiv(columns, 1024))](x, weight, y, columns, BLOCK=1024, num_warps=4)
    return y
"""


@pytest.fixture(scope="module")
def endpoint():
    with serving(script=Script(key=KEY)) as base_url:
        yield {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": base_url}


@pytest.fixture(scope="module")
def steered(endpoint, tmp_path_factory):
    """A run with a model after its first round, then advised and given two kernels: its folder, and
    the same gone on undisturbed with a second round."""
    folder = tmp_path_factory.mktemp("steered")
    one, other = folder / "one", folder / "undisturbed"
    beamsearch("run", PROBLEM, *SMALL, "--llm", "openai", "--output", one, **endpoint)
    said = beamsearch("hint", one, ADVICE).stdout
    assert f"the run is finished; to go on with it: python -m beamsearch resume {one}" in said
    assert said.strip().endswith("--rounds 2")
    (folder / "mine.py").write_text(KERNEL)
    (folder / "wrong.py").write_text(KERNEL.replace("2.0 *", "3.0 *"))
    for name in ("mine.py", "wrong.py"):
        assert "resume" in beamsearch("inject", one, folder / name).stdout
    shutil.copytree(one, other)
    beamsearch("resume", other, "--rounds", "2", **endpoint)
    return one, other


def prompts(trace, number):
    return [path.read_text() for path in trace.round(number).glob("workers/*/*_prompt.txt")]


@pytest.mark.slow
def test_every_prompt_of_the_next_round_holds_the_advice_and_none_before(steered):
    trace = Trace(steered[1])
    assert not any(HEADING in prompt for prompt in prompts(trace, 1))
    asked = prompts(trace, 2)
    assert len(asked) >= 3
    for prompt in asked:
        _, _, told = prompt.partition(HEADING)
        assert "A person may be wrong" in told
        # In its own lines, so that nothing of it reads as a heading of the prompt.
        assert "- Read four rows at once.\n  ## Answer\n  The loads are narrow.\n" in told
    assert first_counted(trace) == {1: 2}
    assert "from round 2 on: Read four rows" in beamsearch("hint", trace.folder).stdout


@pytest.mark.slow
def test_a_persons_kernels_are_candidates_like_others(steered):
    trace = Trace(steered[1])
    mine, wrong, *others = trace.round_record(2).candidates
    assert (mine.name, mine.author, mine.parent, mine.worker) == ("r2-p0", PERSON, None, None)
    assert mine.verdict.correct and mine.measurement and mine.description == "Halves the blocks."
    assert (wrong.name, wrong.author, wrong.verdict.outcome) == ("r2-p1", PERSON, "wrong")
    assert trace.kernel_source(mine) == KERNEL
    assert others and not any(candidate.is_persons for candidate in others)
    lines = [line.split("\t") for line in trace.results_file.read_text().splitlines()]
    by_name = {line[0]: dict(zip(lines[0], line, strict=True)) for line in lines[1:]}
    assert by_name["r2-p0"]["author"] == PERSON != by_name[others[0].name]["author"]
    shown = beamsearch("show", trace.folder).stdout
    assert "r2-p0  ~" in shown and "(a person's: Halves the blocks.)" in shown
    assert not is_unheard(trace)


@pytest.mark.slow
def test_killed_in_the_round_it_ends_as_if_nothing_had_happened(steered, endpoint, tmp_path):
    one, undisturbed = steered
    again = Trace(tmp_path / "killed")
    shutil.copytree(one, again.folder)
    # Given the next round, killed as soon as it has taken what there is
    going = command("resume", again.folder, "--rounds", "2")
    process = subprocess.Popen(going, env=environment(**endpoint), stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (again.round(2) / "plan.json").is_file():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    assert state_of(again.folder, again.run_record()) is State.RUNNING
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert state_of(again.folder, again.run_record()) is State.STOPPED
    # When more is said before it goes on
    assert "resume" in beamsearch("hint", again.folder, "Too late for round 2.").stdout
    done = beamsearch("resume", again.folder, **endpoint)
    # Then the round is the one that was begun
    assert differences(undisturbed, again.folder) == ["steering.json"]
    assert first_counted(again) == {1: 2} and is_unheard(again)
    assert f"resume {again.folder} --rounds 3" in done.stdout


@pytest.mark.slow
def test_a_replay_sees_the_same_in_the_same_rounds(steered, tmp_path):
    done = beamsearch("replay", steered[1], "--output", tmp_path / "again")
    assert "nothing came out differently" in done.stdout
    different = differences(steered[1], tmp_path / "again", unlike=("llm", "who_thinks"))
    assert different == [".steering.lock", "steering.json"]
    said = beamsearch("hint", tmp_path / "again", "More.", code=2).stderr
    assert "replays" in said and len(said.strip().splitlines()) == 1


@pytest.mark.slow
def test_a_waiting_run_takes_a_hint_in_its_next_round(tmp_path):
    trace = Trace(tmp_path / "run")
    options = [*SMALL, "--llm", "batch", "--output", trace.folder]
    beamsearch("run", PROBLEM, *options, code=5)
    assert state_of(trace.folder, trace.run_record()) is State.WAITING
    beamsearch("hint", trace.folder, "Use wider loads.")
    write_lines(trace.folder / "responses.jsonl", map(response, requests(trace.folder)))
    beamsearch("resume", trace.folder, code=5)
    assert len(prompts(trace, 1)) == 2, "of one round, one asked before the hint and one after it"
    assert not any(HEADING in prompt for prompt in prompts(trace, 1))
    assert is_unheard(trace)


@pytest.mark.slow
def test_a_kernel_given_while_another_process_runs_wins_its_round(tmp_path):
    # Given a run that still judges its first kernel
    trace = Trace(tmp_path / "run")
    scaling = ROOT / "tests" / "scaling"
    options = [*SMALL, "--tune", "2", "--llm", "playbook", "--output", trace.folder]
    process = subprocess.Popen(
        command("run", scaling, *options), env=environment(), stdout=subprocess.PIPE, text=True
    )
    deadline = time.monotonic() + 120
    while not trace.run_file.is_file():
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.02)
    # When a person gives it a better one
    (tmp_path / "mine.py").write_text(ROWS)
    said = beamsearch("inject", trace.folder, tmp_path / "mine.py").stdout
    assert "the run takes it when its next round begins" in said
    output = process.communicate(timeout=200)[0]
    assert process.returncode == 0, output

    # Then it is judged, tuned as any that wins, and the round is its own
    mine, *others = trace.round_record(1).candidates
    assert mine.name == "r1-p0" and trace.kernel_source(mine) == ROWS
    assert f"r1-p0  {mine.measurement}" in output
    record, folder = trace.round_record(1), trace.round(1)
    assert "r1-p0" in {tuning.of for tuning in record.tunings}
    assert {c.name for c in others if c.tuned_from == "r1-p0"} <= {"r1-p0-t1", "r1-p0-t2"}
    best = next(c for c in record.candidates if c.name == record.best)
    assert best.is_persons and record.win and record.running_best == record.beam[0] == best.name
    assert record.best_worker is None
    assert (folder / "kernel.py").read_text() == trace.kernel_source(best)
    assert (folder / "optimized_ncu_metrics.json").is_file()
    assert record.absent["opt_reply.txt"] == "a person gave the best"
    results = read_record(folder / "benchmark_results.json", BenchmarkResults)
    assert (results.worker, results.parent, results.running_best) == (None, None, best.name)
    assert trace.run_record().best == best.name
    said = beamsearch("inject", trace.folder, tmp_path / "mine.py", code=2).stderr
    assert "the same kernel as r1-p0 there (correct)" in said


@pytest.fixture
def recorded(steered_record, tmp_path):
    trace = Trace(tmp_path / "run")
    write_record(trace.run_file, steered_record)
    return trace


@pytest.fixture(scope="module")
def steered_record():
    """`run.json` of a recorded run with a model, as if it had not ended."""
    (path,) = (ROOT / "artifacts" / "claude").glob("43_*")
    return Trace(path).run_record().with_values(status="stopped")


def test_a_hint_that_is_taken_away_is_not_in_later_rounds(recorded):
    first, second = (add_hint(recorded.folder, text) for text in ("One.", "Two."))
    assert [hint.number for hint in (first, second)] == [1, 2]
    remove_hint(recorded.folder, 1)
    assert [hint.text for hint in given(recorded, 1)["hints"]] == ["Two."]
    assert add_hint(recorded.folder, "Three.").number == 3, "a number is given once"
    said = beamsearch("hint", recorded.folder).stdout.splitlines()
    assert said == [
        "1  taken away before any round: One.",
        "2  in no round yet: Two.",
        "3  in no round yet: Three.",
    ]


def test_a_kernel_belongs_to_one_round(recorded, tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.py").write_text(KERNEL.replace("512", str(256 << number)))
        add_kernel(recorded.folder, tmp_path / f"{number}.py")
        plan = {"assignments": []} | {
            name: [item.model_dump() for item in items]
            for name, items in given(recorded, number + 1).items()
        }
        assert [kernel["source"] for kernel in plan["kernels"]] == [
            (tmp_path / f"{number}.py").read_text()
        ]
        assert is_unheard(recorded)
        recorded.round(number + 1).mkdir(parents=True)
        (recorded.round(number + 1) / "plan.json").write_text(json.dumps(plan))
        assert not is_unheard(recorded)


def test_hints_of_many_processes_are_all_kept(recorded):
    words = [f"Hint {number}." for number in range(6)]
    started = [
        subprocess.Popen(
            command("hint", recorded.folder, text), env=environment(), stdout=subprocess.DEVNULL
        )
        for text in words
    ]
    assert [process.wait(timeout=120) for process in started] == [0] * len(words)
    hints = recorded.steering().hints
    assert sorted(hint.text for hint in hints) == words
    assert [hint.number for hint in hints] == [*range(1, 7)]


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["hint", "run", "  "], "the hint is empty"),
        (["hint", "run", "a" * 2001], "2001 characters"),
        (["hint", "run", "--remove", "4"], "has no hint 4; it has: none"),
        (["hint", "run", "a", "--remove", "1"], "not both"),
        (["hint", "nowhere", "a"], "holds no run"),
        (["inject", "run", "none.py"], "cannot read the kernel file none.py"),
        (["inject", "run", "broken.py"], "broken.py line 1 does not parse"),
        (["inject", "run", "empty.py"], "defines no kernel_function"),
        (["hint", "playbook", "a"], "it cannot read: a hint would not be used"),
    ],
)
def test_what_cannot_be_taken_is_one_line(recorded, tmp_path, arguments, reason):
    (tmp_path / "broken.py").write_text("def kernel_function(:\n")
    (tmp_path / "empty.py").write_text("import torch\n")
    own = recorded.run_record()
    settings = own.settings.thought_by("playbook").model_copy(update={"model": ()})
    playbook = own.with_values(settings=settings, who_thinks="playbook")
    write_record(tmp_path / "playbook" / "run.json", playbook)
    done = beamsearch(*arguments, code=2, cwd=tmp_path)
    assert reason in done.stderr and len(done.stderr.strip().splitlines()) == 1
    assert recorded.steering().hints == [] and not done.stdout


def test_a_packed_run_is_not_written_into():
    (path,) = (ROOT / "artifacts" / "claude").glob("43_*")
    assert "holds a packed run" in beamsearch("hint", path, "a", code=2).stderr
