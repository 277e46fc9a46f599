"""Job times of recorded runs.

What the records hold, and what becomes of it here:

- **a part of the lane's time** (judging with timing, profiling, tuning, comparing, preparing) is
  recorded as one total a run (`totals.lane` of run.json). Divided by the jobs of that kind that the
  trace shows, it is the mean of one job. Of `comparing` a subject has one share: the baselines' job
  has four, a confirmation two, the last one five, the input kernel's anchor of a later visit one.
- **a sweep** alone has seconds of its own (tuning.json). What is above the lane's mean is its
  compilation, with whatever it waited for the lane, so rather too much. A candidate's compilation
  has no time of its own, and takes one of these.
- **the spread** of a job about its run's mean is that of the sweeps' seconds about theirs.
- **what a worker does in a round** (repairs, sweep, tuned forms, a profile of its best) is as
  recorded, worker by worker, and whether the round ended with a confirmation too.
- **a model's latency** was not recorded: all these runs went through batch files. The tokens of
  each answer were, as estimates.
- **Python** is what was left of the idle time, divided by the starts of a process: nearly all of it
  is that, since a batch starts one for each hand-over. The Python within a round is in it.
- **left out**: what a lane waited for another process of the same GPU, and for the profiler's start
  and report (0.3 to 5 s a run). Results are verified on the lane, within the judging.

A batch starts its process and loads its inputs for each hand-over, and compiles kernels again that
it compiled before; so these times are rather those of a slow run.
"""

from __future__ import annotations

import json
import re
import tarfile
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from beamsearch.records.packed import opened_run
from beamsearch.records.trace import Trace
from beamsearch.records.tuning import Tuning
from beamsearch.records.verdict import Stage

ROOT = Path(__file__).resolve().parent.parent.parent
CLAUDE = ROOT / "artifacts" / "claude"
PLAYBOOK = ROOT / "artifacts" / "playbook"
SIX = ROOT / "tools" / "kept" / "kernelbench_six.tar.xz"

BASELINE_SUBJECTS, LAST_SUBJECTS, CONFIRMED_SUBJECTS = 4, 5, 2
NO_LANE = (Stage.REVIEW, Stage.POLICY, Stage.LOAD, Stage.COMPILE)
"""A candidate that fails there never had the lane."""


@dataclass(frozen=True)
class Sweep:
    """A recorded sweep."""

    compile_s: float
    """Without the lane."""
    forms: int
    factor: float
    """Its seconds over the mean of its run's."""


@dataclass(frozen=True)
class WorkersRound:
    """What one worker did in one round."""

    repairs: tuple[int, ...]
    """Of each variant, how many."""
    sweep: Sweep | None
    tuned: int
    profiles: int
    """New ones, of its own candidates."""
    tokens: dict[str, int]
    """Of the answers, by purpose; a repair's is the mean."""

    @property
    def candidates(self) -> int:
        """All that it made."""
        return len(self.repairs) + sum(self.repairs) + self.tuned


@dataclass(frozen=True)
class Recorded:
    """A run: mean seconds of a job, and what its workers did."""

    name: str
    workers: int
    """A round."""
    judge_s: float
    profile_s: float
    sweep_s: float
    subject_s: float
    """A subject of a comparison."""
    prepare_s: float
    """What a process does once on its lane."""
    start_s: float
    """Python, until a process has something for the lane."""
    idle_compile_s: float
    """The lane's idle time for compilation, a candidate: what nothing hid."""
    sweeps: tuple[Sweep, ...]
    rounds: tuple[tuple[WorkersRound, ...], ...]
    confirms: tuple[bool, ...]
    """By round, whether it ended with a confirmation."""
    busy_s: dict[str, float]
    """The lane's, as recorded."""
    jobs: dict[str, int]
    """How many the totals are divided by."""

    @property
    def candidates(self) -> int:
        """All that its workers made."""
        return sum(worker.candidates for workers in self.rounds for worker in workers)

    @property
    def candidate_s(self) -> float:
        """Lane seconds a candidate, of everything."""
        return sum(self.busy_s.values()) / self.candidates


def recorded_runs() -> list[Recorded]:
    """Every recorded run that has an account of its lane."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with tarfile.open(SIX) as members:
            members.extractall(folder, filter="data")
        traces = [opened_run(path) for path in sorted(CLAUDE.iterdir())]
        traces += [Trace(path.parent) for path in sorted(folder.glob("*/run.json"))]
        return [read(trace) for trace in traces]


def read(trace: Trace) -> Recorded:
    """One run's job times. Raises ValueError where it has no account of a lane."""
    record = trace.run_record()
    if record.totals.lane is None:
        raise ValueError(f"{trace.folder} has no account of its lane")
    busy, idle = record.totals.lane.busy_s, record.totals.lane.idle_s
    rounds = trace.completed_rounds()
    everyone = [c for done in rounds for c in done.candidates]
    visits = len(list((trace.folder / "visits").iterdir()))
    asked = json.loads((trace.folder / "batch.json").read_text())["asked"]
    confirms = tuple(
        (trace.round(done.round) / "confirmation.json").is_file() for done in rounds[1:]
    )
    tunings = [tuning for done in rounds for tuning in done.tunings]
    firsts = len(rounds[0].candidates)
    jobs = {
        "judging": sum(c.verdict.correct or c.verdict.stage not in NO_LANE for c in everyone)
        + len(list((trace.folder / "examinations").iterdir())),
        "profiling": len(list((trace.rounds_folder / "profiles").iterdir())),
        "tuning": len(tunings),
        "comparing": BASELINE_SUBJECTS
        + LAST_SUBJECTS
        + CONFIRMED_SUBJECTS * sum(confirms)
        + (firsts if firsts > 1 else 0)
        + (visits - 1),
        "preparing": visits,
        "start": len(asked) + 1,
    }
    sweep_s = busy.get("tuning", 0.0) / max(1, jobs["tuning"])
    sweeps = {tuning.of: sweep for tuning, sweep in _sweeps(tunings, sweep_s)}
    return Recorded(
        name=record.problem,
        workers=record.settings.workers,
        judge_s=(busy["judging"] + busy["timing"]) / jobs["judging"],
        profile_s=busy["profiling"] / jobs["profiling"],
        sweep_s=sweep_s,
        subject_s=busy["comparing"] / jobs["comparing"],
        prepare_s=busy["preparing"] / jobs["preparing"],
        # `files` in older runs
        start_s=(idle.get("python", 0.0) + idle.get("files", 0.0)) / jobs["start"],
        idle_compile_s=idle["compilation"] / (len(everyone) - firsts),
        sweeps=tuple(sweeps.values()),
        rounds=tuple(tuple(_workers(trace, number, sweeps)) for number in range(1, len(rounds))),
        confirms=confirms,
        busy_s=busy,
        jobs=jobs,
    )


def playbook_seconds() -> dict[str, float]:
    """Problem -> seconds of the playbook's recorded runs of eight rounds, which have no account."""
    records = [opened_run(path).run_record() for path in sorted(PLAYBOOK.iterdir())]
    return {one.problem: one.totals.seconds for one in records if len(one.rounds) == 1 + 8}


def _sweeps(tunings: Sequence[Tuning], lane_s: float) -> Iterator[tuple[Tuning, Sweep]]:
    for tuning in tunings:
        mean = fmean(other.seconds for other in tunings)
        own = max(0.0, tuning.seconds - lane_s)
        yield tuning, Sweep(own, len(tuning.forms), tuning.seconds / mean)


def _workers(trace: Trace, number: int, sweeps: dict[str, Sweep]) -> Iterator[WorkersRound]:
    """What each worker of a round did."""
    lines = [json.loads(line) for line in trace.ledger_file.read_text().splitlines()]
    names = [c.name for c in trace.round_record(number).candidates]
    for worker in sorted({name.split("-")[1] for name in names}):
        prefix = f"r{number}-{worker}"
        own = [name for name in names if name.startswith(f"{prefix}-")]
        variants = [name for name in own if re.fullmatch(rf"{prefix}-v\d+", name)]
        tokens: Counter[str] = Counter()
        calls: Counter[str] = Counter()
        for line in lines:
            if (line["round"], f"w{line['worker']}") == (number, worker):
                tokens[line["purpose"]] += line["tokens_out"] or 0
                calls[line["purpose"]] += 1
        calls |= Counter(dict.fromkeys(("diagnosis", "variants", "reflection"), 1))
        yield WorkersRound(
            repairs=tuple(
                sum(bool(re.fullmatch(rf"{variant}-f\d+", name)) for name in own)
                for variant in variants
            ),
            sweep=next((sweep for of, sweep in sweeps.items() if of in own), None),
            tuned=sum(bool(re.search(r"-t\d+$", name)) for name in own),
            profiles=len(list((trace.rounds_folder / "profiles").glob(f"{prefix}-*.json"))),
            tokens={purpose: round(tokens[purpose] / count) for purpose, count in calls.items()},
        )
