"""The two cases: one problem over many lanes, and a suite of problems with a lane each."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from tools.lane_study.engine import Process, Simulation, Until
from tools.lane_study.recorded import Recorded
from tools.lane_study.runs import Machine, Run, Schedule, Search, World

LANES = (1, 2, 4, 8, 32, 128)
AS_IT_IS = Schedule()
PROBLEMS = 250
RUNS_A_LANE = 2
"""So that one's compilation and model hide behind the other's use of the lane."""
LENGTHS = (1, 1, 8, 8, 8)
"""Rounds of the five recorded runs that ended by the default limits (`artifacts/playbook`)."""


@dataclass(frozen=True)
class Outcome:
    """What so many lanes did, over all simulations of a case."""

    lanes: int
    candidates: int
    seconds: float
    """One simulation after the other."""
    rounds_s: float
    """Of these, between the begin of the first round and the end of the last."""
    busy_s: dict[str, float]
    idle_s: dict[str, float]

    @property
    def an_hour(self) -> float:
        """Candidates an hour."""
        return 3600 * self.candidates / self.seconds

    @property
    def busy(self) -> float:
        """Share (0..1) of the lanes' time in which they are held."""
        return sum(self.busy_s.values()) / (self.lanes * self.seconds)

    def waits(self) -> dict[str, float]:
        """Shares (0..1) of the lanes' time by what they wait for, the largest first."""
        whole = self.lanes * self.seconds
        shares = {why: seconds / whole for why, seconds in self.idle_s.items() if seconds}
        return dict(sorted(shares.items(), key=lambda item: -item[1]))


def one_problem(
    recorded: Sequence[Recorded],
    lanes: int,
    *,
    workers: int,
    schedule: Schedule = AS_IT_IS,
    world: World,
    seeds: int,
) -> Outcome:
    """A run of each recorded problem, alone on all lanes, many times."""
    search = Search(workers=workers)
    outcomes = []
    for seed in range(seeds):
        for one in recorded:
            machine, simulation = Machine(lanes), Simulation()
            run = Run(
                *(simulation, machine, one, recorded),
                search=search,
                schedule=schedule,
                world=world,
                seed=str(seed),
            )
            simulation.begin(run.process(), machine.account)
            seconds = simulation.run()
            outcomes.append(_outcome([machine], [run], seconds))
    return _together(outcomes)


def suite(
    recorded: Sequence[Recorded],
    lanes: int,
    *,
    world: World,
    seeds: int,
    problems: int = PROBLEMS,
    runs_a_lane: int = RUNS_A_LANE,
    longest_first: bool = False,
) -> Outcome:
    """Runs of so many problems, each on one lane, up to `runs_a_lane` at a time there."""
    return _together(
        [
            _suite(recorded, lanes, world, seed, problems, runs_a_lane, longest_first)
            for seed in range(seeds)
        ]
    )


def _suite(
    recorded: Sequence[Recorded],
    lanes: int,
    world: World,
    seed: int,
    problems: int,
    runs_a_lane: int,
    longest_first: bool,
) -> Outcome:
    draw = Random(f"suite {seed}")
    drawn = [(draw.choice(recorded), draw.choice(LENGTHS)) for _ in range(problems)]
    # Nobody knows beforehand how many rounds one takes; what its candidates cost can be known.
    drawn.sort(key=lambda item: item[0].candidate_s, reverse=longest_first)
    waiting = deque(enumerate(drawn))
    simulation, machines = Simulation(), [Machine(1) for _ in range(lanes)]
    runs: list[Run] = []

    def slot(machine: Machine) -> Process:
        """One run after the other, as long as there are any."""
        while waiting:
            number, (one, rounds) = waiting.popleft()
            search, name = Search(rounds=rounds), f"suite {seed} {number}"
            run = Run(simulation, machine, one, recorded, search=search, world=world, seed=name)
            runs.append(run)
            yield Until([simulation.begin(run.process(), machine.account)])

    for machine in machines * runs_a_lane:
        simulation.begin(slot(machine), machine.account)
    seconds = simulation.run()
    return _outcome(machines, runs, seconds)


def _outcome(machines: Sequence[Machine], runs: Sequence[Run], seconds: float) -> Outcome:
    busy: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    for machine in machines:
        machine.account.book(seconds)
        busy.update(machine.account.busy_s)
        idle.update(machine.account.idle_s)
    lanes = sum(machine.lanes.places for machine in machines)
    return Outcome(
        lanes=lanes,
        candidates=sum(run.candidates for run in runs),
        seconds=seconds,
        rounds_s=sum(run.rounds_s for run in runs),
        busy_s=dict(busy),
        idle_s=dict(idle),
    )


def _together(outcomes: Sequence[Outcome]) -> Outcome:
    busy: Counter[str] = Counter()
    idle: Counter[str] = Counter()
    for outcome in outcomes:
        busy.update(outcome.busy_s)
        idle.update(outcome.idle_s)
    return Outcome(
        lanes=outcomes[0].lanes,
        candidates=sum(outcome.candidates for outcome in outcomes),
        seconds=sum(outcome.seconds for outcome in outcomes),
        rounds_s=sum(outcome.rounds_s for outcome in outcomes),
        busy_s=dict(busy),
        idle_s=dict(idle),
    )
