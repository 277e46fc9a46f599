"""What a person gave a run, in its round: advice that its prompts see, and kernels to be judged."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from beamsearch.paths import command
from beamsearch.records.candidate import Candidate
from beamsearch.records.proposal import Proposal
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import BenchmarkResults, Result
from beamsearch.records.trace import Trace, read_record, write_record, write_text
from beamsearch.run.candidates import Candidates, Made, names_of
from beamsearch.run.context import RoundView, Shared
from beamsearch.run.tuning import Tuner
from beamsearch.search.directions import Plan
from beamsearch.search.survivors import distinct
from beamsearch.settings import Settings

PLAN = "plan.json"
"""Of a round: who does what, and what a person gave for it."""
RESULTS = "benchmark_results.json"


def plans_of(trace: Trace) -> dict[int, Plan]:
    """The plan of each round that began, by its number."""
    found: dict[int, Plan] = {}
    while (path := trace.round(len(found) + 1) / PLAN).is_file():
        found[len(found) + 1] = read_record(path, Plan)
    return found


def given(trace: Trace, number: int) -> dict[str, Any]:
    """What a round that begins takes of what people gave so far: fields of its plan."""
    steering = trace.steering()
    before = [plan for of, plan in plans_of(trace).items() if of < number]
    taken = sum(len(plan.kernels) for plan in before)
    return {"hints": steering.standing, "kernels": steering.kernels[taken:]}


def first_counted(trace: Trace) -> dict[int, int]:
    """Number of a hint -> the round from which on it counted, of those that did."""
    found: dict[int, int] = {}
    for number, plan in plans_of(trace).items():
        for hint in plan.hints:
            found.setdefault(hint.number, number)
    return found


def is_unheard(trace: Trace) -> bool:
    """Whether people gave something that no round has taken yet."""
    counted = first_counted(trace)
    hints = any(hint.number not in counted for hint in trace.steering().standing)
    return hints or bool(given(trace, len(plans_of(trace)) + 1)["kernels"])


def resume_command(trace: Trace, settings: Settings) -> str:
    """What lets one more round begin: the limit of rounds is raised where all have begun."""
    begun = len(plans_of(trace))
    more = ["--rounds", str(begun + 1)] if begun >= settings.rounds else []
    return command("resume", trace.folder, *more)


def persons_name(number: int, kernel: int) -> str:
    """Of a person's kernel in a round, from 0."""
    return f"r{number}-p{kernel}"


class PersonsKernels:
    """Judges what a person gave for a round, and tunes the best of it as a worker's."""

    worker = None

    def __init__(
        self, shared: Shared, view: RoundView, kernels: list[Proposal], rival: Candidate
    ) -> None:
        """`rival`: the running best, which a kernel has to beat to be tuned."""
        self.shared = shared
        self.view = view
        self.kernels = kernels
        self.parent = rival
        self.folder = shared.trace.worker(view.number, None)
        self.candidates = Candidates(shared, view.number, None, self.folder)

    def run(self) -> None:
        """All of them; each is judged once. Raises Stopped or BeamsearchError."""
        made = [
            Made(persons_name(self.view.number, number), kernel)
            for number, kernel in enumerate(self.kernels)
        ]
        self.shared.executor.prepare(self.candidates.unjudged(made, self.view.seen))
        candidates: list[Candidate] = []
        for item in made:
            candidates.append(self.judge(item, {**names_of(candidates), **self.view.seen}))
        candidates += Tuner(self).run(candidates)
        times = comparable_times(self.shared.trace, candidates)
        for best in distinct(candidates, times)[:1]:
            write_text(self.folder / "kernel.py", self.shared.source(best))
        candidates.sort(key=lambda candidate: candidate.name)
        results = BenchmarkResults(
            round=self.view.number,
            worker=None,
            parent=None,
            parent_time=None,
            results=[
                Result(
                    name=candidate.name,
                    outcome=candidate.verdict.outcome.value,
                    measurement=candidate.measurement,
                    speedup_over_parent=None,
                )
                for candidate in candidates
            ],
        )
        write_record(self.folder / RESULTS, results)

    def doing(self, what: str) -> None:
        """Nothing to say, as no worker does it. Raises Stopped where the run is being stopped."""
        self.shared.stop.check()

    def judge(self, made: Made, seen: Mapping[str, str]) -> Candidate:
        """The judged candidate."""
        self.doing(f"judging {made.name}")
        return self.candidates.judge(made, seen)
