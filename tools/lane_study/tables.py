"""What is simulated, and its results as lines of text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace

from tools.lane_study.recorded import Recorded, WorkersRound, playbook_seconds
from tools.lane_study.runs import Schedule, World
from tools.lane_study.study import (
    AS_IT_IS,
    LANES,
    PROBLEMS,
    RUNS_A_LANE,
    Outcome,
    one_problem,
    suite,
)

AT_ONCE = World()
MODEL = World(tokens_per_s=60)
WORLDS = {"answers at once": AT_ONCE, "a model, 60 tokens/s": MODEL}
"""No latency is recorded: none at all, and that of a fast model without reasoning."""
OTHER_WORLDS = {
    "a model, 20 tokens/s": World(tokens_per_s=20),
    "compilation halved": World(compilation=0.5),
    "baselines 90 s, last look 30 s": World(baselines_s=90, examination_s=30),
}
APART = Schedule(variants_apart=True, baselines_last=True, reflection_apart=True)
ALL_APART = replace(APART, tuning_apart=True)
SCHEDULES: dict[str, tuple[int, Schedule]] = {
    "as it is": (8, AS_IT_IS),
    "variants side by side": (8, Schedule(variants_apart=True)),
    "baselines awaited last": (8, Schedule(baselines_last=True)),
    "reflections beside the next round": (8, Schedule(reflection_apart=True)),
    "tuning beside the next round": (8, Schedule(tuning_apart=True)),
    "all four": (8, ALL_APART),
    "a round ahead": (8, Schedule(rounds_ahead=1)),
    "two ahead": (8, Schedule(rounds_ahead=2)),
    "three ahead": (8, Schedule(rounds_ahead=3)),
    "all four, a round ahead": (8, replace(ALL_APART, rounds_ahead=1)),
    "all four, two ahead": (8, replace(ALL_APART, rounds_ahead=2)),
    "16 workers": (16, AS_IT_IS),
    "16 workers, all four": (16, ALL_APART),
    "16 workers, all four, a round ahead": (16, replace(ALL_APART, rounds_ahead=1)),
    "32 workers": (32, AS_IT_IS),
    "32 workers, all four, a round ahead": (32, replace(ALL_APART, rounds_ahead=1)),
}
"""What a scheduler could do: workers a round, and how they are laid out. All of them repeat: what
somebody is told depends on which rounds have ended, never on who was first."""


@dataclass(frozen=True)
class Case:
    """One simulation to make. Without workers it is a suite's."""

    lanes: int
    world: World
    workers: int = 0
    schedule: Schedule = AS_IT_IS
    runs_a_lane: int = RUNS_A_LANE
    longest_first: bool = False

    def alone(self) -> Case:
        """The same on one lane."""
        return replace(self, lanes=1)


@dataclass
class Study:
    """Results of cases, each made once."""

    recorded: Sequence[Recorded]
    seeds: int
    problems: int = PROBLEMS
    """Of a suite."""
    found: dict[Case, Outcome] = field(default_factory=dict)

    def make(self, cases: Sequence[Case], processes: int) -> None:
        """Simulate them all, and each on one lane too, which is what it is held against."""
        wanted = list(dict.fromkeys(one for case in cases for one in (case, case.alone())))
        missing = [case for case in wanted if case not in self.found]
        if processes == 1:
            self.found |= {case: self.simulated(case) for case in missing}
            return
        with ProcessPoolExecutor(processes) as pool:
            self.found |= dict(zip(missing, pool.map(self.simulated, missing), strict=True))

    def simulated(self, case: Case) -> Outcome:
        """One case."""
        if case.workers:
            return one_problem(
                self.recorded,
                case.lanes,
                workers=case.workers,
                schedule=case.schedule,
                world=case.world,
                seeds=self.seeds,
            )
        return suite(
            self.recorded,
            case.lanes,
            world=case.world,
            seeds=self.seeds,
            problems=self.problems,
            runs_a_lane=case.runs_a_lane,
            longest_first=case.longest_first,
        )

    def speedup(self, case: Case) -> float:
        """Candidates an hour over those of one lane."""
        return self.found[case].an_hour / self.found[case.alone()].an_hour

    def speedup_of_rounds(self, case: Case) -> float:
        """The same without what comes before the first round and after the last."""
        many, one = self.found[case], self.found[case.alone()]
        return many.candidates / many.rounds_s * one.rounds_s / one.candidates


def by_lanes(world: World, workers: int = 0, *, longest_first: bool = False) -> list[Case]:
    """A case for each number of lanes."""
    return [Case(n, world, workers=workers, longest_first=longest_first) for n in LANES]


def all_cases() -> list[Case]:
    """Everything that the tables show."""
    cases: list[Case] = []
    for world in WORLDS.values():
        cases += [*by_lanes(world, 4), *by_lanes(world, 8), *by_lanes(world)]
        cases += by_lanes(world, longest_first=True)
        cases += schedules(world).values()
        cases += runs_a_lane(world).values()
    for world in OTHER_WORLDS.values():
        cases += worlds_cases(world)
    return cases


def schedules(world: World) -> dict[str, Case]:
    """One problem on four lanes, laid out in several ways."""
    return {
        name: Case(4, world, workers=workers, schedule=schedule)
        for name, (workers, schedule) in SCHEDULES.items()
    }


def runs_a_lane(world: World) -> dict[int, Case]:
    """A suite on eight lanes, by how many runs share each."""
    return {runs: Case(8, world, runs_a_lane=runs) for runs in (1, 2, 4)}


def worlds_cases(world: World) -> list[Case]:
    """What is looked at in every world: the two goals, and what could be built."""
    best = SCHEDULES["all four, a round ahead"][1]
    many = SCHEDULES["16 workers, all four, a round ahead"][1]
    return [
        Case(8, world),
        Case(8, world, longest_first=True),
        Case(4, world, workers=8),
        Case(4, world, workers=8, schedule=best),
        Case(4, world, workers=16, schedule=many),
    ]


def lines(study: Study) -> Iterator[str]:
    """All tables."""
    for name, world in WORLDS.items():
        for workers in (4, 8):
            yield from lane_table(
                study, f"One problem, {workers} workers, {name}", by_lanes(world, workers)
            )
        yield from lane_table(study, f"A suite, cheapest first, {name}", by_lanes(world))
        longest = by_lanes(world, longest_first=True)
        yield from lane_table(study, f"A suite, longest first, {name}", longest)
    for name, world in WORLDS.items():
        yield from schedule_table(study, name, world)
    for name, world in WORLDS.items():
        yield f"A suite on 8 lanes by runs that share a lane, {name}: candidates an hour, busy"
        for runs, case in runs_a_lane(world).items():
            found = study.found[case]
            yield f"{runs:>6}{found.an_hour:>9.0f}{found.busy:>7.0%}"
        yield ""
    yield from world_table(study)


def lane_table(study: Study, title: str, cases: Sequence[Case]) -> Iterator[str]:
    """A line a number of lanes."""
    yield title
    yield f"{'lanes':>6}{'an hour':>9}{'speedup':>9}{'efficiency':>12}{'busy':>7}  lanes wait for"
    for case in cases:
        found, speedup = study.found[case], study.speedup(case)
        yield (
            f"{case.lanes:>6}{found.an_hour:>9.0f}{speedup:>9.2f}{speedup / case.lanes:>12.0%}"
            f"{found.busy:>7.0%}  {_shares(found.waits())}"
        )
    yield ""


def schedule_table(study: Study, name: str, world: World) -> Iterator[str]:
    """A line a schedule, on four lanes."""
    cases = schedules(world)
    today = study.found[cases["as it is"].alone()].an_hour
    yield f"One problem on 4 lanes, {name}: speedup over one lane, the same in the rounds"
    yield "alone, and over today's one lane with 8 workers"
    yield f"{'':36}{'an hour':>9}{'speedup':>9}{'rounds':>8}{'today':>7}{'busy':>7}  lanes wait for"
    for label, case in cases.items():
        found = study.found[case]
        yield (
            f"{label:36}{found.an_hour:>9.0f}{study.speedup(case):>9.2f}"
            f"{study.speedup_of_rounds(case):>8.2f}{found.an_hour / today:>7.2f}"
            f"{found.busy:>7.0%}  {_shares(found.waits())}"
        )
    yield ""


def world_table(study: Study) -> Iterator[str]:
    """A line a world: whether the goals hang on what is assumed."""
    yield "What hangs on the assumptions. A suite on 8 lanes: efficiency, cheapest and longest"
    yield "first. One problem on 4 lanes: speedup, in brackets in the rounds alone, with 8 workers"
    yield "as it is, with all four and a round ahead, and that with 16 workers."
    for name, world in {**WORLDS, **OTHER_WORLDS}.items():
        cheapest, longest, *problems = worlds_cases(world)
        cells = [f"{study.speedup(case) / 8:>6.0%}" for case in (cheapest, longest)]
        cells += [
            f"{study.speedup(case):>7.2f} ({study.speedup_of_rounds(case):.2f})"
            for case in problems
        ]
        yield f"{name:32}{''.join(cells)}"


def check_lines(study: Study) -> Iterator[str]:
    """What the simulation says of what was recorded and not used for it."""
    yield "Held against the records, on one lane, answers at once:"
    for workers in sorted({one.workers for one in study.recorded}):
        own = [one for one in study.recorded if one.workers == workers]
        found = one_problem(own, 1, workers=workers, world=AT_ONCE, seeds=study.seeds)
        made = sum(one.candidates for one in own)
        recorded = sum(one.idle_compile_s * one.candidates for one in own) / made
        simulated = found.idle_s["compilation"] / found.candidates
        yield (
            f"- seconds in which the lane is idle for compilation, a candidate, {workers} workers: "
            f"{simulated:.1f} simulated, {recorded:.1f} recorded"
        )
    known = playbook_seconds()
    for one in study.recorded:
        if one.name in known:
            plain = [without_a_model(one)]
            found = one_problem(plain, 1, workers=4, world=AT_ONCE, seeds=study.seeds)
            yield (
                f"- seconds of eight rounds of the playbook, {one.name[:20]}: "
                f"{found.seconds / study.seeds:.0f} simulated, {known[one.name]:.0f} recorded"
            )
    yield ""


def without_a_model(recorded: Recorded) -> Recorded:
    """The run as the playbook's recorded ones were: no repair, no sweep, a profile a round."""
    plain = WorkersRound(repairs=(0, 0), sweep=None, tuned=0, profiles=0, tokens={})
    workers = (replace(plain, profiles=1), plain, plain, plain)
    return replace(recorded, rounds=(workers,))


def _shares(waits: Mapping[str, float]) -> str:
    return ", ".join(f"{why} {share:.0%}" for why, share in waits.items() if share >= 0.005)
