"""What a replay takes from the run it replays."""

from pathlib import Path

import pytest

from beamsearch.proposer.replies import read_variants
from beamsearch.records.packed import opened_run
from beamsearch.run.recorded import recorded_parent, recorded_plan

RUN = next(Path("artifacts/claude").glob("82_*"))


@pytest.mark.parametrize("number", [1, 2, 3, 4, 5])
def test_patches_of_a_recorded_reply_give_the_kernels_that_were_judged(number):
    trace = opened_run(RUN)
    judged = {
        trace.kernel_source(c).rstrip()
        for record in trace.completed_rounds()
        for c in record.candidates
        if c.kernel_file is not None
    }
    plan = recorded_plan(RUN, number)
    for assignment in plan.assignments:
        reply = trace.worker(number, assignment.worker) / "opt_reply.txt"
        base = recorded_parent(RUN, number, assignment.worker)
        for proposal in read_variants(reply.read_text(), base):
            assert not proposal.fault
            assert proposal.source.rstrip() in judged


def test_of_a_round_that_was_never_begun_nothing_is_known():
    assert recorded_plan(RUN, 99) is None
    assert recorded_parent(RUN, 99, 0) is None
