"""Where a kernel's code comes from, and what a worker that starts afresh sees."""

from types import SimpleNamespace

import pytest

from beamsearch.cli.display import describe_candidate
from beamsearch.proposer.questions import Memory, Shown
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.job import Judgement
from beamsearch.records.measurement import Measurement
from beamsearch.records.proposal import Proposal
from beamsearch.records.trace import Trace, write_record, write_text
from beamsearch.run.bench import Bench
from beamsearch.run.candidates import Made
from beamsearch.run.context import RoundView, Shared
from beamsearch.run.stop import StopToken
from beamsearch.search.directions import Assignment
from tests.search.made import CORRECT as RIGHT

PARENT = "".join(f"parent = {n}\n" for n in range(20))
BEST = "".join(f"best = {n}\n" for n in range(20))


def kernel(name: str, parent: str | None) -> Candidate:
    return Candidate(
        name=name,
        parent=parent,
        round=int(name[1]),
        description="",
        author="m",
        kernel_file=f"{name}.py",
        verdict=RIGHT,
        measurement=Measurement(source="modelled", time_ms=1, gpu="H200"),
    )


def bench(folder, parent: str, best_time: float) -> Bench:
    shared = Shared(
        trace=Trace(folder),
        card=None,
        settings=None,
        executor=SimpleNamespace(run=lambda job: Judgement(verdict=RIGHT)),
        proposer=None,
        floor=None,
        observer=SimpleNamespace(candidate=lambda c: None, worker=lambda *told: None),
        stop=StopToken(),
    )
    write_record(shared.trace.round(0) / "r0-s0.json", kernel("r0-s0", None))
    write_text(folder / "r0-s0.py", PARENT)
    write_text(folder / "r1-w0-v0.py", BEST)
    shown = [Shown(name="r1-w0-v0", description="", time="", source=BEST)]
    view = RoundView(
        number=2,
        candidates={"r0-s0": kernel("r0-s0", None), "r1-w0-v0": kernel("r1-w0-v0", "r0-s0")},
        times={"r0-s0": 1, "r1-w0-v0": best_time},
        memory=Memory(best=shown),
        seen={},
    )
    direction = Direction(finding="latency_not_hidden")
    return Bench(shared, view, Assignment(worker=0, parent=parent, direction=direction))


@pytest.mark.parametrize(
    ("source", "origin", "share"),
    [
        (PARENT.replace("parent = 7\n", "x = 7\n"), "r0-s0", 0.95),
        (BEST.replace("best = 7\n", "x = 7\n"), "r1-w0-v0", 0.95),
        ("".join(f"own = {n}\n" for n in range(20)), None, None),
    ],
)
def test_most_of_its_lines_say_where_a_kernel_comes_from(tmp_path, source, origin, share):
    worker = bench(tmp_path, "r0-s0", 0.995)
    made = worker.judge(Made("r2-w0-v0", Proposal(description="an idea", source=source)), {})
    assert (made.built_from, made.built_share) == (origin, share)
    told = describe_candidate(made)
    assert ("95% of its lines are r1-w0-v0's" in told) == (origin == "r1-w0-v0")


def test_a_repair_is_built_from_what_it_repairs(tmp_path):
    worker = bench(tmp_path, "r0-s0", 0.995)
    failed = "".join(f"failed = {n}\n" for n in range(20))
    worker.judge(Made("r2-w0-v0", Proposal(description="", source=failed)), {})
    proposal = Proposal(description="", source=failed.replace("failed = 7", "mended = 7"))
    mended = worker.judge(Made("r2-w0-v0-f1", proposal, repair_of="r2-w0-v0"), {})
    assert mended.built_from == "r2-w0-v0"
    assert "of its lines" not in describe_candidate(mended)


def test_who_starts_afresh_sees_no_other_kernel_in_full(tmp_path):
    assert bench(tmp_path, "r0-s0", 0.5).memory.best == []
    assert bench(tmp_path, "r0-s0", 0.995).memory.best  # nothing is faster: it is in the beam
    assert bench(tmp_path, "r1-w0-v0", 0.5).memory.best


@pytest.mark.parametrize(
    ("source", "whole"), [(PARENT.replace("parent = 7\n", "x = 7\n"), False), (BEST, True)]
)
def test_who_reflects_sees_the_shorter_of_a_diff_and_the_kernel(tmp_path, source, whole):
    worker = bench(tmp_path, "r0-s0", 0.995)
    made = worker.judge(Made("r2-w0-v0", Proposal(description="", source=source)), {})
    given = SimpleNamespace(parent="r0-s0", parent_source=PARENT)
    trial = worker.trial(given, made)
    assert trial.whole == whole
    assert (trial.diff == source) == whole and len(trial.diff) <= len(source)
