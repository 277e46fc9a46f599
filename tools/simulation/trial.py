"""One search on one piece of ground, by the functions that a real run uses."""

from __future__ import annotations

from dataclasses import dataclass, replace

from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import RoundRecord
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.search.directions import Assignment, Plan, deal
from beamsearch.search.pairs import Ratio
from beamsearch.search.stopping import Limits, stop_reason
from beamsearch.search.strategies import STRATEGIES, State, Strategy, settle
from beamsearch.settings import Settings
from kernel_profiling.profile import Finding, FindingKind
from tools.simulation.landscape import Ground, Spot

USUAL = Settings.model_validate({})
_BEAM = STRATEGIES["beam"]
COMPARED = STRATEGIES | {
    "none fresh": replace(_BEAM, parents=lambda state: _BEAM.parents(replace(state, stalled=False)))
}
"""The strategies of a run, and the beam without its fresh worker after a round without a win."""
FINDINGS = [
    Finding(kind=kind, title="simulated", evidence=[], gain_bound=1.0, advice="")
    for kind in (FindingKind.LATENCY, FindingKind.UNCOALESCED, FindingKind.NARROW_ACCESS)
]
"""What every kernel's profile finds: most recorded parents with many workers had three."""
CORRECT = Verdict(
    outcome=Outcome.CORRECT, checks=[Check(stage=Stage.TIMING, name="simulated", passed=True)]
)
WRONG = Verdict(outcome=Outcome.WRONG, stage=Stage.SMOKE, reason="simulated")


@dataclass
class Trial:
    """A search, and where its kernels really stand."""

    rounds: list[RoundRecord]
    spots: dict[str, Spot]

    def best(self, number: int) -> float:
        """True time of the best kernel known after a round, as a multiple of the floor."""
        return self.spots[self.rounds[number].running_best].time

    def stops_at(self, patience: int) -> int:
        """The round after which it would have ended with so much patience."""
        limits = Limits(rounds=len(self.rounds) - 1, patience=patience)
        ends = (n for n in range(len(self.rounds)) if stop_reason(self.rounds[: n + 1], limits))
        return next(ends)


def search(
    ground: Ground,
    strategy: str,
    seed: int,
    *,
    rounds: int = USUAL.rounds,
    settings: Settings = USUAL,
) -> Trial:
    """All rounds, whatever is found; the same seed gives the same search."""
    run = _Search(ground, COMPARED[strategy], seed, settings)
    for _ in range(rounds):
        run.round()
    return Trial(run.done, run.spots)


class _Search:
    """The rounds of a run, with children from a landscape instead of a proposer and a judge."""

    def __init__(self, ground: Ground, strategy: Strategy, seed: int, settings: Settings) -> None:
        self.ground = ground
        self.strategy = strategy
        self.seed = seed
        self.settings = settings
        self.spots = {"r0-s0": ground.first}
        self.times = {"r0-s0": ground.measured(ground.first)}
        self.families = {"r0-s0": ground.first.family}
        first = self._candidate("r0-s0", ground.first)
        self.everyone = [first]
        self.by_name = {first.name: first}
        self.done = [
            RoundRecord(
                round=0, candidates=[first], best="r0-s0", beam=["r0-s0"], running_best="r0-s0"
            )
        ]

    def round(self) -> None:
        last = self.done[-1]
        made = [c for a in self._plan(last).assignments for c in self._work(a)]
        self.everyone += made
        self.by_name |= {c.name: c for c in made}
        standing = settle(
            self.strategy,
            [self.by_name[name] for name in last.beam],
            made,
            self.by_name[last.running_best],
            times=self.times,
            k=self.settings.beam,
            families=self.families,
            # A confirmation measures again, so that noise does not decide: true times.
            confirm=lambda faster, other: {
                c.name: Ratio.of(self._true(c) / self._true(other)) for c in faster
            },
        )
        self.done.append(
            RoundRecord(
                round=len(self.done),
                candidates=made,
                best=standing.best.name if standing.best else None,
                win=standing.win,
                beam=standing.beam,
                running_best=standing.running_best.name,
            )
        )

    def _plan(self, last: RoundRecord) -> Plan:
        state = State(
            round=len(self.done),
            workers=self.settings.workers,
            seed=self.seed,
            candidates=self.everyone,
            times=self.times,
            beam=last.beam,
            best=last.running_best,
            stalled=last.round > 0 and not last.win,
        )
        parents = self.strategy.parents(state)
        return deal(parents, {name: FINDINGS for name in set(parents)}, self.everyone)

    def _work(self, assignment: Assignment) -> list[Candidate]:
        made = []
        for variant in range(self.settings.variants):
            name = f"r{len(self.done)}-w{assignment.worker}-v{variant}"
            parent = self.spots[assignment.parent]
            spot = self.ground.child(parent, assignment.direction, variant)
            if spot is not None:
                self.spots[name] = spot
                self.times[name] = self.ground.measured(spot)
                self.families[name] = spot.family
            made.append(self._candidate(name, spot, assignment))
        return made

    def _candidate(
        self, name: str, spot: Spot | None, assignment: Assignment | None = None
    ) -> Candidate:
        time = None
        if spot is not None:
            time = Measurement(source="modelled", time_ms=self.times[name], gpu="simulated")
        return Candidate(
            name=name,
            parent=assignment.parent if assignment else None,
            round=len(self.done) if assignment else 0,
            worker=assignment.worker if assignment else None,
            direction=assignment.direction if assignment else None,
            description="",
            author="simulation",
            fingerprint=spot.key if spot else name,
            verdict=CORRECT if spot else WRONG,
            measurement=time,
        )

    def _true(self, candidate: Candidate) -> float:
        return self.spots[candidate.name].time
