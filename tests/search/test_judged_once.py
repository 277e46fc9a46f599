"""However workers repeat themselves and each other, a kernel is judged once in a run."""

import tempfile
import threading
from pathlib import Path
from types import SimpleNamespace

from hypothesis import given, settings
from hypothesis import strategies as st

from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.job import JudgeJob, Judgement
from beamsearch.records.proposal import Proposal
from beamsearch.records.trace import Trace
from beamsearch.records.verdict import Outcome
from beamsearch.run.candidates import Candidates, Made
from beamsearch.run.context import Shared
from beamsearch.run.stop import StopToken
from beamsearch.search.directions import Assignment
from tests.search.made import CORRECT, failed

SOURCES = st.integers(0, 5).map(lambda n: f"def kernel_function(x):\n    return x + {n}\n")
ROUNDS = st.lists(
    st.lists(st.lists(SOURCES, min_size=1, max_size=2), min_size=1, max_size=3),
    min_size=1,
    max_size=3,
)


class Counting:
    """An executor that notes what it is asked to judge; every second kernel is wrong."""

    def __init__(self) -> None:
        self.judged: list[str] = []

    def run(self, job: JudgeJob) -> Judgement:
        self.judged.append(job.subject.source)
        right = len(self.judged) % 2 == 0
        return Judgement(verdict=CORRECT if right else failed(Outcome.WRONG))


@settings(max_examples=25, deadline=None)
@given(ROUNDS, st.booleans())
def test_no_kernel_is_judged_twice(rounds, stopped):
    """`stopped`: the run is stopped and goes on in a new process after each worker."""
    executor = Counting()
    observer = SimpleNamespace(candidate=lambda candidate: None)
    with tempfile.TemporaryDirectory() as folder:

        def process():
            return Shared(
                trace=Trace(Path(folder)),
                card=None,
                settings=None,
                executor=executor,
                proposer=None,
                floor=None,
                observer=observer,
                stop=StopToken(),
            )

        first = process()

        def work(number, worker, sources):
            shared = process() if stopped else first
            direction = Direction(finding="latency_not_hidden")
            a = Assignment(worker=worker, parent="r0-s0", direction=direction)
            judge = Candidates(shared, number, a, shared.trace.worker(number, worker))
            for n, source in enumerate(sources):
                variant = Proposal(description="adds", source=source)
                made = Made(f"r{number}-w{worker}-v{n}", variant)
                candidates.append(judge.judge(made, seen))

        seen: dict[str, str] = {}
        for number, workers in enumerate(rounds, 1):
            candidates: list[Candidate] = []
            threads = [
                threading.Thread(target=work, args=(number, worker, sources))
                for worker, sources in enumerate(workers)
            ]
            for thread in threads:
                thread.start()
                if stopped:
                    thread.join()
            for thread in threads:
                thread.join()
            for c in candidates:
                assert (c.verdict.outcome is Outcome.DUPLICATE) == (c.fingerprint in seen)
            seen = {c.fingerprint: c.name for c in candidates} | seen
    assert len(set(executor.judged)) == len(executor.judged)
    assert set(executor.judged) == {s for workers in rounds for own in workers for s in own}
