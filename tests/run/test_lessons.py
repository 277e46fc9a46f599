"""Lessons and their lineage, on the runs under `artifacts` and on small histories."""

import shutil
from pathlib import Path

import pytest

from beamsearch.errors import UsageError
from beamsearch.proposer.playbook.playbook import choose
from beamsearch.proposer.prompts.render import render
from beamsearch.proposer.questions import Earlier, Memory
from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.packed import opened_run
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import Trace, read_record, write_record, write_text
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.run.memory.earlier_runs import KEPT, Learned, earlier, learn, read_run
from beamsearch.run.memory.lessons import Lesson, lessons, standing, worded
from beamsearch.settings import Settings
from tests import ROOT
from tests.proposer.situations import variants_question

ARTIFACTS = ROOT / "artifacts" / "playbook"
RIGHT = Verdict(
    outcome=Outcome.CORRECT, checks=[Check(stage=Stage.SMOKE, name="small", passed=True)]
)


def artifact(start: str) -> Path:
    return next(ARTIFACTS.glob(f"{start}_*"))


def candidate(name: str, parent: str | None, description: str, time_ms: float) -> Candidate:
    return Candidate(
        name=name,
        parent=parent,
        round=int(name[1]),
        worker=0,
        description=description,
        author="m",
        fingerprint=name,
        verdict=RIGHT,
        measurement=Measurement(source="modelled", time_ms=time_ms, gpu="H200"),
    )


TAUGHT = Lesson(
    text="8 warps were 20% slower", avoid=False, round=1, teacher="r1-w0-v0", told_by="r1-w0"
)


@pytest.mark.parametrize(
    ("later", "stands"),
    [
        (candidate("r2-w0-v0", "r0-s0", "num_warps 8", 0.5), False),
        (candidate("r2-w0-v0", "r1-w0-v1", "num_warps 8", 0.5), False),  # on a descendant
        (candidate("r2-w0-v0", "r0-s1", "num_warps 8", 0.5), True),  # on another lineage
        (candidate("r2-w0-v0", "r0-s0", "num_warps 16", 0.5), True),  # another idea
        (candidate("r2-w0-v0", "r0-s0", "num_warps 8", 0.995), True),  # within the noise
        (candidate("r2-w0-v0", "r0-s0", "num_warps 8", 1.5), True),  # the same outcome again
    ],
)
def test_a_later_outcome_of_the_opposite_sign_drops_a_lesson(later, stands):
    history = [
        candidate("r0-s0", None, "the input kernel", 1.0),
        candidate("r0-s1", None, "another", 1.0),
        candidate("r1-w0-v0", "r0-s0", "num_warps 8", 1.2),
        candidate("r1-w0-v1", "r0-s0", "strips of 4 rows", 0.9),
        later,
    ]
    times = {c.name: c.time_ms for c in history}
    assert standing([TAUGHT], history, times) == ([TAUGHT] if stands else [])


def test_on_a_recorded_run_only_the_same_idea_turned_round_drops_a_lesson():
    trace = opened_run(artifact("43"))
    done = trace.completed_rounds()
    candidates = [c for record in done for c in record.candidates]
    times = comparable_times(trace, candidates)
    every = lessons(trace, len(done), candidates, times)
    assert len(every) == 92  # as many as were written: nothing was tried twice there
    slower = next(item for item in every if item.text.startswith("loads evicted first was 15%"))
    assert slower.teacher == "r8-w2-v1"

    teacher = next(c for c in candidates if c.name == slower.teacher)
    later = teacher.model_copy(update={"name": "r9-w0-v0", "round": 9})
    gained = times | {"r9-w0-v0": times[teacher.parent] * 0.9}
    left = standing(every, [*candidates, later], gained)
    dropped = {item.text for item in every} - {item.text for item in left}
    assert dropped == {  # r2-w0-v1 was made from r1-w1-v1
        "loads evicted first was 15% slower than r2-w0-v1",
        "loads evicted first on kernels like r2-w0-v1",
        "loads evicted first was 11% slower than r1-w1-v1",
        "loads evicted first on kernels like r1-w1-v1",
    }


def test_lessons_say_who_taught_them_and_stand_once():
    def taught(text: str, by: str, teacher: str) -> Lesson:
        return Lesson(text=text, avoid=False, round=1, teacher=teacher, told_by=by)

    every = [
        taught("strips pay", "r1-w0, from r0-s0", "r1-w0-v0"),
        taught("strips pay", "r2-w3, from r1-w0-v0", "r2-w3-v1-f1"),
        taught("r1-w2-v0 spills", "r1-w2-v0, from r0-s0", "r1-w2-v0"),
    ]
    told = worded(every, avoid=False)
    assert told == ["[r1-w0, from r0-s0; r2-w3, from r1-w0-v0] strips pay", "r1-w2-v0 spills"]


def test_earlier_runs_are_kept_in_the_runs_own_folder(tmp_path):
    runs = [tmp_path / start for start in ("82", "43")]
    for run in runs:
        shutil.copytree(artifact(run.name), run)
    trace = Trace(tmp_path / "new")
    settings = Settings(learn_from=tuple(map(str, runs)))
    learn(trace, settings)
    for run in runs:
        shutil.rmtree(run)
    learn(trace, settings)  # as when it is resumed

    assert [run.gpu for run in read_record(trace.learned_file, Learned).runs] == ["NVIDIA H200"] * 2
    known = earlier(trace, "43_Max_Pooling_3D", "NVIDIA H200")
    assert len(known.lessons) == KEPT
    assert known.lessons[0].startswith("43_Max_Pooling_3D in bfloat16 on NVIDIA H200 (3.03 x")
    assert known.moves["loads kept out of L1 (.cg)"] < 0.5


def test_a_run_that_taught_nothing_is_a_clear_error(tmp_path):
    with pytest.raises(UsageError, match="holds no run"):
        read_run(tmp_path)


def test_prompts_show_earlier_runs_and_say_what_was_left_out():
    told = [
        f"43_Max_Pooling_3D in bfloat16 on NVIDIA H200 (3 x its first kernel): {n}" for n in "ab"
    ]
    question = variants_question("82", 2, memory=Memory(earlier=Earlier(lessons=told)))
    prompt = render(question)
    assert "Learned in earlier runs" in prompt
    assert all(text in prompt for text in told)


def test_the_playbook_begins_with_what_gained_in_earlier_runs():
    plain = choose(variants_question("43", 2), set(), 40)
    last = [p for p in plain if p.tier == plain[0].tier][-1]
    assert last not in plain[:2]
    memory = Memory(earlier=Earlier(moves={"; ".join(last.moves): 2.0}))
    assert last in choose(variants_question("43", 2, memory=memory), set(), 2)


@pytest.mark.parametrize("change", [{"tuned_from": "x"}, {"outcome": Outcome.DUPLICATE}])
def test_a_duplicate_is_no_failure_and_a_tuned_form_no_lesson(change, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(opened_run(artifact("43")).folder, folder)
    before = read_run(folder)
    path = folder / "optimization_trace" / "round_2" / "round.json"
    record = read_record(path, RoundRecord)
    one = next(
        c for c in record.candidates if before.moves.get(c.description) and c.verdict.correct
    )
    if "outcome" in change:
        verdict = one.verdict.model_copy(update=change | {"reason": "a twin"})
        changed = one.model_copy(update={"verdict": verdict, "measurement": None})
    else:
        changed = one.model_copy(update=change)
    candidates = [changed if c is one else c for c in record.candidates]
    write_record(path, record.model_copy(update={"candidates": candidates}))
    after = read_run(folder)
    lost = len(before.moves[one.description]) - len(after.moves.get(one.description, []))
    assert lost == 1 and 0.0 not in after.moves.get(one.description, [])


def test_a_dissection_is_a_lesson(tmp_path):
    trace = Trace(tmp_path)
    told = '{"summary": "", "dissection": "the spills ate the gain", "patterns_to_avoid": ["x"]}'
    write_text(trace.worker(1, 0) / "reflexion.txt", told)
    made = candidate("r1-w0-v0", "r0-s0", "strips", 1.2)
    every = lessons(trace, 2, [made], {"r1-w0-v0": 1.2})
    assert [(item.text, item.avoid, item.teacher) for item in every] == [
        ("the spills ate the gain", False, "r1-w0-v0"),
        ("x", True, "r1-w0-v0"),
    ]
