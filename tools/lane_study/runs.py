"""One run over some lanes: what its threads do, with job times drawn from records.

The order is that of `beamsearch/run/worker.py` and `round.py`: a worker profiles, asks, asks,
judges its variants one after the other (both are compiled from the start), repairs each that
failed, tunes, profiles its best and reflects. The round's end is a barrier, and confirms on one
lane. The baselines are timed beside the first round, and its end waits for them. The winner is
looked at and timed at once, beside the reflections on the last round. Jobs that wait go to lanes
in the order of `beamsearch/executor/dispatch.py`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from random import Random

from tools.lane_study.engine import (
    Account,
    Hold,
    Pause,
    Pool,
    Process,
    Simulation,
    Task,
    Until,
)
from tools.lane_study.recorded import (
    BASELINE_SUBJECTS,
    CONFIRMED_SUBJECTS,
    LAST_SUBJECTS,
    Recorded,
    WorkersRound,
)

ORDER = {"comparing": 0, "judging": 1, "tuning": 2, "profiling": 3}
"""Of the jobs of one round; all else first."""
CORES_A_LANE = 12
"""Of 16 a GPU, as the judge takes three quarters of a machine's."""
CORES_A_KERNEL = 4
"""A candidate is compiled for its own shapes and about three others side by side; assumed."""


@dataclass(frozen=True)
class World:
    """What the records do not say, and may be changed to see what hangs on it."""

    tokens_per_s: float | None = None
    """Of a model's answer; None: answers are there at once, as in a replay."""
    compilation: float = 1.0
    """Of the recorded time."""
    baselines_s: float | None = None
    """Lane seconds of the baselines' job; None: four subjects' share."""
    examination_s: float | None = None
    """Of the winner's closer look; None: as any judgement."""


@dataclass(frozen=True)
class Schedule:
    """How the work of a run is laid out; the defaults are what a run does."""

    variants_apart: bool = False
    """Each variant with its repairs is judged as soon as it is compiled, none behind the other."""
    baselines_last: bool = False
    """The baselines are waited for at the end of the run, not of the first round."""
    reflection_apart: bool = False
    """A round waits for the reflections of the last but one, with their profiles, and not for the
    last one's: lessons come a round later."""
    tuning_apart: bool = False
    """The same of sweeps: tuned forms come a round later."""
    rounds_ahead: int = 0
    """Rounds that begin before the one before them has ended: their beam is that many older."""


@dataclass(frozen=True)
class Search:
    """How much a run does."""

    workers: int = 4
    rounds: int = 8


class Machine:
    """Lanes with their cores, for the runs that share them."""

    def __init__(self, lanes: int) -> None:
        self.lanes = Pool(lanes, lanes=True)
        self.cores = Pool(CORES_A_LANE * lanes)
        self.account = Account(lanes)


class Run:
    """One run; `process` is what goes on in it."""

    def __init__(
        self,
        simulation: Simulation,
        machine: Machine,
        recorded: Recorded,
        others: Sequence[Recorded],
        *,
        search: Search,
        world: World,
        seed: str,
        schedule: Schedule | None = None,
    ) -> None:
        """`others`: from which what `recorded` lacks is drawn. The same seed draws the same work
        for any number of lanes and any schedule."""
        self.simulation = simulation
        self.machine = machine
        self.recorded = recorded
        self.search = search
        self.schedule = schedule or Schedule()
        self.world = world
        self.seed = seed
        self.candidates = 0
        self.rounds_s = 0.0
        """From the begin of the first round to the end of the last; 0 before."""
        everybodys = [sweep for one in others for sweep in one.sweeps]
        self._sweeps = recorded.sweeps or tuple(everybodys)
        self._factors = [sweep.factor for sweep in everybodys]
        self._first_profile: Task | None = None
        self._later: defaultdict[int, list[Task]] = defaultdict(list)
        """By round, what goes on beyond its end."""

    def process(self) -> Process:
        """From the start of its process to the confirmed winner."""
        lanes = self.machine.lanes.places
        yield Until([self._begin(self._open(number)) for number in range(lanes)])
        draw = self._draws("first")
        yield self._hold("judging", self.recorded.judge_s, draw)
        begun = self.simulation.now
        baselines = self._begin(self._baselines())
        ends: list[Task] = []
        for number in range(self.search.rounds):
            ahead = number - 1 - self.schedule.rounds_ahead
            awaited = [*ends[max(0, ahead) : ahead + 1]] if ahead >= 0 else []
            first = number == 0 and not self.schedule.baselines_last
            beside = [baselines] if first else []
            ends.append(self._begin(self._round(number, awaited, ends[-1:], beside)))
        yield Until([*ends[-1:], baselines])
        later = [task for tasks in self._later.values() for task in tasks]
        rounds = self._begin(self._end_of_rounds(later, begun))
        last = self.search.rounds
        examined = self.world.examination_s or self.recorded.judge_s
        compared = LAST_SUBJECTS * self.recorded.subject_s
        looks = [
            self._hold("judging", examined, draw, last),
            self._hold("comparing", compared, draw, last),
        ]
        yield Until([rounds, *(self._begin(_one_step(look)) for look in looks)])

    def _end_of_rounds(self, later: Sequence[Task], begun: float) -> Process:
        yield Until(later)
        self.rounds_s = self.simulation.now - begun

    def _open(self, number: int) -> Process:
        """A lane's own process: it starts, loads inputs, and times the input kernel."""
        draw = self._draws(f"open {number}")
        yield Pause(self.recorded.start_s, "start")
        yield self._hold("preparing", self.recorded.prepare_s + self.recorded.subject_s, draw)

    def _baselines(self) -> Process:
        seconds = self.world.baselines_s
        if seconds is None:
            seconds = BASELINE_SUBJECTS * self.recorded.subject_s
        yield self._hold("comparing", seconds, self._draws("baselines"))

    def _round(
        self,
        number: int,
        awaited: Sequence[Task],
        before: Sequence[Task],
        beside: Sequence[Task],
    ) -> Process:
        """One round. `awaited`: the round whose beam it takes; `before`: that which ends before it;
        `beside`: what else its end waits for."""
        yield Until(awaited)
        yield Until(self._later[number - 2 - self.schedule.rounds_ahead])
        draw = self._draws(f"round {number}")
        confirms = draw.choice(self.recorded.confirms)
        workers = [
            self._begin(self._worker(number, worker)) for worker in range(self.search.workers)
        ]
        yield Until([*workers, *beside])
        yield Until(before)
        if confirms:
            seconds = CONFIRMED_SUBJECTS * self.recorded.subject_s
            yield self._hold("comparing", seconds, draw, number)
        self._wait("round's end", -len(workers))

    def _worker(self, number: int, worker: int) -> Process:
        draw = self._draws(f"round {number} worker {worker}")
        did = draw.choice([w for workers in self.recorded.rounds for w in workers])
        if number <= self.schedule.rounds_ahead:  # its parent is the first kernel
            if self._first_profile is None:
                self._first_profile = self._begin(self._profile(draw, 0))
            yield Until([self._first_profile])
        for purpose in ("diagnosis", "variants"):
            yield from self._answer(did, purpose)
        compiled = [self._begin(self._compilation(draw)) for _ in did.repairs]
        draws = [self._draws(f"{draw.random()}") for _ in did.repairs]
        made = [
            (self._variant(one, own, number), self._repairs(did, repairs, own, number))
            for one, repairs, own in zip(compiled, did.repairs, draws, strict=True)
        ]
        if self.schedule.variants_apart:
            yield Until([self._begin(_one_by_one(steps)) for steps in made])
        else:
            yield from _one_by_one([variant for variant, _ in made])
            yield from _one_by_one([repairs for _, repairs in made])
        after = self._draws(f"round {number} worker {worker} after")
        is_last = number == self.search.rounds - 1
        for process, apart in (
            (self._tuning(did, draw, number), self.schedule.tuning_apart),
            (self._reflection(did, after, number), self.schedule.reflection_apart or is_last),
        ):
            if apart:
                self._later[number].append(self._begin(process))
            else:
                yield from process
        self._wait("round's end", 1)

    def _variant(self, compilation: Task, draw: Random, number: int) -> Process:
        yield Until([compilation])
        yield from self._judged(draw, number)

    def _repairs(self, did: WorkersRound, count: int, draw: Random, number: int) -> Process:
        for _ in range(count):
            yield from self._answer(did, "repair")
            yield from self._compilation(draw)
            yield from self._judged(draw, number)

    def _judged(self, draw: Random, number: int) -> Process:
        yield self._hold("judging", self.recorded.judge_s, draw, number)
        self.candidates += 1

    def _tuning(self, did: WorkersRound, draw: Random, number: int) -> Process:
        sweep = did.sweep
        if sweep is None:
            return
        cores = min(sweep.forms, CORES_A_LANE)
        yield from self._compiled(sweep.compile_s, cores)
        yield self._hold("tuning", self.recorded.sweep_s, draw, number)
        for _ in range(did.tuned):
            yield from self._compilation(draw)
            yield from self._judged(draw, number)

    def _reflection(self, did: WorkersRound, draw: Random, number: int) -> Process:
        for _ in range(did.profiles):
            yield from self._profile(draw, number)
        yield from self._answer(did, "reflection")

    def _profile(self, draw: Random, number: int) -> Process:
        yield self._hold("profiling", self.recorded.profile_s, draw, number)

    def _compilation(self, draw: Random) -> Process:
        """A candidate's."""
        yield from self._compiled(draw.choice(self._sweeps).compile_s, CORES_A_KERNEL)

    def _compiled(self, seconds: float, cores: int) -> Process:
        """So many forms side by side, each on a core."""
        hold = Hold(self.machine.cores, seconds * self.world.compilation, "compilation")
        self._wait("compilation", 1)
        yield Until([self._begin(_one_step(hold)) for _ in range(cores)])
        self._wait("compilation", -1)

    def _answer(self, did: WorkersRound, purpose: str) -> Process:
        speed = self.world.tokens_per_s
        if speed is not None:
            yield Pause(did.tokens.get(purpose, 0) / speed, "model")

    def _hold(self, what: str, seconds: float, draw: Random, number: int = 0) -> Hold:
        """A lane, for a time about the mean; the round of this number waits for it."""
        seconds *= draw.choice(self._factors)
        return Hold(self.machine.lanes, seconds, what, (number, ORDER.get(what, 0)))

    def _begin(self, process: Process) -> Task:
        return self.simulation.begin(process, self.machine.account)

    def _wait(self, why: str, count: int) -> None:
        self.simulation.wait(self.machine.account, why, count)

    def _draws(self, what: str) -> Random:
        return Random(f"{self.seed}/{self.recorded.name}/{what}")


def _one_step(hold: Hold) -> Process:
    yield hold


def _one_by_one(processes: Iterable[Process]) -> Process:
    for process in processes:
        yield from process
