"""When two kernels are one: by source, and by build."""

from types import SimpleNamespace

import pytest

from beamsearch.problem.kernel import build, fingerprint
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.job import Judgement
from beamsearch.records.proposal import Proposal
from beamsearch.records.trace import Trace
from beamsearch.records.verdict import Outcome, Stage, Verdict
from beamsearch.run.candidates import Candidates, Made, names_of
from beamsearch.run.context import Shared
from beamsearch.run.stop import StopToken
from beamsearch.search.directions import Assignment

SOURCE = '''
"""Docs."""
import triton
import triton.language as tl
from typing import Any

@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 64):
    """More docs."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + index, tl.load(x_ptr + index, mask=index < n, other=0.0) + 1, mask=index < n)

class Keeper:
    kept: dict[str, Any] = {}

def kernel_function(x, *, scale=1.5, name=None):
    y = x.new_empty(x.shape)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    assert [f"{n!r:>{4}}" for n in x.shape if n], "empty" "!"
    with open("/dev/null", "rb") as (stream):
        add[grid](x, y, x.numel(), BLOCK=1024, num_warps=8)
    return y
'''
KNOWN = "5f6f34c83369839f"


def test_a_fingerprint_is_the_same_in_every_python():
    """Which this test sees wherever it runs: what is known comes from one of them."""
    assert fingerprint(SOURCE) == KNOWN


def test_a_build_is_what_differs_by_more_than_constants():
    other = SOURCE.replace("1024", "512").replace(", num_warps=8", ", num_warps=4, num_stages=2")
    assert fingerprint(other) != fingerprint(SOURCE)
    assert build(other) == build(SOURCE)
    assert build(SOURCE.replace("index < n, other", "index < n + n, other")) != build(SOURCE)
    assert build(SOURCE.replace("scale=1.5", "scale=None")) != build(SOURCE)


def seen(name, source, code, outcome=Outcome.WRONG):
    verdict = Verdict(outcome=outcome, stage=Stage.SMOKE, reason="so", code_fingerprint=code)
    return Candidate(
        name=name, round=1, description="", author="m", fingerprint=source, verdict=verdict
    )


def test_the_first_of_equals_is_named_and_what_was_set_aside_is_not_seen():
    made = [
        seen("a", "s1", "c1"),
        seen("b", "s2", "c1", Outcome.DUPLICATE),
        seen("c", "s3", None, Outcome.SET_ASIDE),
    ]
    assert names_of(made) == {"s1": "a", "c1": "a", "s2": "b"}


class Compiler:
    """An executor to which the code is the number in a source, modulo ten."""

    def __init__(self):
        self.judged = []

    def run(self, job):
        code = str(int(job.subject.source.split()[-1]) % 10)
        given = {"code_fingerprint": code, "stage": Stage.COMPILE, "reason": "as it is"}
        if code in job.seen:
            return Judgement(verdict=Verdict(outcome=Outcome.DUPLICATE, **given))
        self.judged.append(job.subject.source)
        return Judgement(verdict=Verdict(outcome=Outcome.COMPILE_ERROR, **given))


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_twins_are_decided_for_each_worker_whoever_comes_first(tmp_path, order):
    """Worker 0 writes 1 and its twin 11, worker 1 writes 11, worker 2 writes 21, a twin seen."""
    executor = Compiler()
    shared = Shared(
        trace=Trace(tmp_path),
        card=None,
        settings=None,
        executor=executor,
        proposer=None,
        floor=None,
        observer=SimpleNamespace(candidate=lambda candidate: None),
        stop=StopToken(),
    )
    direction = Direction(finding="latency_not_hidden")
    verdicts = {}
    for worker in order:
        assignment = Assignment(worker=worker, parent="r0-s0", direction=direction)
        judge = Candidates(shared, 1, assignment, shared.trace.worker(1, worker))
        own, known = [], {"2": "r0-s0"}
        for n, number in enumerate([(1, 11), (11,), (12, 21)][worker]):
            variant = Proposal(description="", source=f"x = {number}")
            made = Made(f"r1-w{worker}-v{n}", variant)
            own.append(judge.judge(made, names_of(own) | known))
            verdicts[own[-1].name] = own[-1].verdict
    twins = {n: v.reason.split()[9] for n, v in verdicts.items() if v.outcome is Outcome.DUPLICATE}
    assert twins == {"r1-w0-v1": "r1-w0-v0;", "r1-w2-v0": "r0-s0;"}
    assert sorted(executor.judged) == ["x = 1", "x = 11", "x = 21"]
