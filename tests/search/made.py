"""Candidates and random landscapes for tests of the search."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import RoundRecord
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.search.directions import Assignment, Plan, deal
from beamsearch.search.pairs import Ratio
from beamsearch.search.strategies import STRATEGIES, State, settle
from kernel_profiling.profile import Finding, FindingKind

CORRECT = Verdict(
    outcome=Outcome.CORRECT, checks=[Check(stage=Stage.SMOKE, name="own", passed=True)]
)
FAILURES = [o for o in Outcome if o not in (Outcome.CORRECT, Outcome.DUPLICATE)]
KINDS = [k for k in FindingKind if k is not FindingKind.AT_FLOOR]


def failed(outcome: Outcome) -> Verdict:
    return Verdict(outcome=outcome, stage=Stage.SMOKE, reason="the last row is missing")


def candidate(name: str, time_ms: float = 1.0, source: str | None = None, **more) -> Candidate:
    verdict = more.pop("verdict", CORRECT)
    if code := more.pop("code", None):
        verdict = verdict.model_copy(update={"code_fingerprint": code})
    measurement = Measurement(source="modelled", time_ms=time_ms, gpu="H200")
    return Candidate(
        name=name,
        round=more.pop("round", 1),
        description="",
        author="playbook",
        fingerprint=source or name,
        verdict=verdict,
        measurement=measurement if verdict.correct else None,
        **more,
    )


def finding(kind: FindingKind) -> Finding:
    return Finding(kind=kind, title="t", evidence=["e"], gain_bound=2.0, advice="a")


@dataclass(frozen=True)
class World:
    """A random landscape: what each kernel's children are is drawn from its seed alone."""

    seed: int
    findings: int
    """Of each kernel."""
    failing: float
    """Share of children that fail, each in its own way."""
    repeats: float
    """Share of children that are a source seen often: one of a kernel's first two."""
    ties: float
    """Share of children as fast as the parent, some of them the same compiled code."""

    def findings_of(self, name: str) -> list[Finding]:
        return [finding(k) for k in Random(f"{self.seed}{name}").sample(KINDS, self.findings)]

    def child(self, parent: Kernel, direction: str, variant: int) -> Kernel:
        chance = Random(f"{self.seed}/{parent.source}/{direction}/{variant}")
        if chance.random() < self.repeats:
            chance = Random(f"{self.seed}/{parent.source}/{chance.randrange(2)}")
        source = f"{chance.getrandbits(64):x}"
        if chance.random() < self.failing:
            return Kernel(source, math.inf, source, source, chance.choice(FAILURES))
        if chance.random() < self.ties:
            same = chance.random() < 0.5
            family = parent.family if same or chance.random() < 0.5 else source
            return Kernel(source, parent.time, parent.code if same else source, family)
        other = chance.random() < 0.4
        factor = math.exp(chance.gauss(0, 0.3))
        return Kernel(source, parent.time * factor, source, source if other else parent.family)


@dataclass(frozen=True)
class Kernel:
    source: str
    time: float
    code: str
    family: str
    outcome: Outcome = Outcome.CORRECT


@dataclass(frozen=True)
class Played:
    """A run of the search functions alone."""

    rounds: list[RoundRecord]
    plans: list[Plan]
    times: dict[str, float]
    families: dict[str, str]

    @property
    def candidates(self) -> dict[str, Candidate]:
        return {c.name: c for record in self.rounds for c in record.candidates}


def play(
    strategy: str,
    world: World,
    *,
    rounds: int = 5,
    workers: int = 4,
    k: int = 2,
    seed: int = 0,
    lost: frozenset[tuple[int, int]] = frozenset(),
) -> Played:
    """Rounds as a run has them; the workers in `lost` (round, worker) have no kernel to show."""
    kernels = {"r0-s0": Kernel("first", 1.0, "first", "first")}
    first = candidate("r0-s0", source="first", code="first", round=0)
    everyone = {first.name: first}
    times = {first.name: 1.0}
    families = {first.name: "first"}
    done = [RoundRecord(round=0, candidates=[first], beam=["r0-s0"], running_best="r0-s0")]
    plans: list[Plan] = []
    for number in range(1, rounds + 1):
        last = done[-1]
        state = State(
            round=number,
            workers=workers,
            seed=seed,
            candidates=list(everyone.values()),
            times=times,
            beam=last.beam,
            best=last.running_best,
            stalled=number > 1 and not last.win,
        )
        parents = STRATEGIES[strategy].parents(state)
        found = {name: world.findings_of(name) for name in parents}
        plans.append(deal(parents, found, list(everyone.values())))
        seen = {c.fingerprint for c in everyone.values()}
        made = []
        for a in plans[-1].assignments:
            for variant in range(2):
                name = f"r{number}-w{a.worker}-v{variant}"
                kernel = world.child(kernels[a.parent], f"{a.direction}", variant)
                kernels[name] = kernel
                made.append(_judged(name, number, a, kernel, seen, (number, a.worker) in lost))
                if made[-1].verdict.correct:
                    times[name], families[name] = kernel.time, kernel.family
        everyone |= {c.name: c for c in made}
        standing = settle(
            STRATEGIES[strategy],
            [everyone[name] for name in last.beam],
            made,
            everyone[last.running_best],
            times=times,
            k=k,
            families=families,
            confirm=lambda faster, other: {
                c.name: Ratio.of(times[c.name] / times[other.name]) for c in faster
            },
        )
        done.append(
            RoundRecord(
                round=number,
                candidates=made,
                best=standing.best.name if standing.best else None,
                win=standing.win,
                beam=standing.beam,
                running_best=standing.running_best.name,
            )
        )
    return Played(done, plans, times, families)


def _judged(name: str, number: int, a: Assignment, kernel: Kernel, seen, lost: bool) -> Candidate:
    outcome = Outcome.NO_CODE if lost else kernel.outcome
    if kernel.source in seen and not lost:
        outcome = Outcome.DUPLICATE
    return candidate(
        name,
        kernel.time,
        name if lost else kernel.source,
        verdict=CORRECT if outcome is Outcome.CORRECT else failed(outcome),
        code=None if lost else kernel.code,
        round=number,
        worker=a.worker,
        parent=a.parent,
        direction=a.direction,
    )
