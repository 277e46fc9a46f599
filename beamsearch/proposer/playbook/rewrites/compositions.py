"""What to try on a kernel, best guess first: whole compositions, then single moves, then pairs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from beamsearch.proposer.playbook.rewrites import (
    address,
    caching,
    constants,
    contraction,
    launch,
    repack,
    rereads,
    residues,
    retile,
    strip,
    unroll,
)
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Rewrite
from kernel_profiling.profile import FindingKind

ALL: tuple[Rewrite, ...] = (
    constants.REWRITE,
    residues.REWRITE,
    contraction.REWRITE,
    repack.REWRITE,
    rereads.REWRITE,
    strip.REWRITE,
    retile.REWRITE,
    unroll.REWRITE,
    address.REWRITE,
    caching.REWRITE,
    launch.REWRITE,
)
"""In the order in which they compose."""

STRUCTURES: tuple[tuple[Rewrite, ...], ...] = (
    (residues.REWRITE, contraction.REWRITE),
    (rereads.REWRITE,),
    (strip.REWRITE,),
    (retile.REWRITE,),
    (contraction.REWRITE,),
    (residues.REWRITE,),
)
"""What changes how the work is cut, most gained first; one of them goes into a composition."""
BEFORE: tuple[Rewrite, ...] = (constants.REWRITE,)
AFTER: tuple[Rewrite, ...] = (repack.REWRITE, unroll.REWRITE, address.REWRITE)
"""What is added to a composition where it fits. No run measured `repack` or `address` apart, but
winners hold them: without `address` Triton 3.6 makes 687 instructions of the max pooling's, not
529, and without `repack` 48 loads of the transposed convolution's, not 34."""
PAIRS = 24
"""Pairs of moves looked at when nothing simpler is left."""


@dataclass(frozen=True)
class Proposal:
    """A new kernel, what was done to the old one, and what that answers."""

    moves: tuple[str, ...]
    """What was done, step by step; the same move on another kernel reads the same."""
    names: tuple[str, ...]
    """Names of the rewrites."""
    findings: frozenset[FindingKind]
    source: str
    tier: int
    """0: a composition; 1: one move; 2: two moves."""


class _Draft:
    """A kernel on its way through rewrites."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.moves: tuple[str, ...] = ()
        self.names: tuple[str, ...] = ()
        self.findings: frozenset[FindingKind] = frozenset()

    def after(self, rewrite: Rewrite, move: str, source: str) -> _Draft:
        new = _Draft(source)
        new.moves = (*self.moves, move)
        new.names = (*self.names, rewrite.name)
        new.findings = self.findings | set(rewrite.findings)
        return new

    def forms(self, rewrite: Rewrite, hints: Hints) -> list[_Draft]:
        """Every form of a rewrite of this kernel."""
        return [self.after(rewrite, move, text) for move, text in rewrite.apply(self.source, hints)]

    def first(self, rewrites: tuple[Rewrite, ...], hints: Hints) -> _Draft:
        """The first form of each rewrite that fits, one on the other."""
        draft = self
        for rewrite in rewrites:
            draft = next(iter(draft.forms(rewrite, hints)), draft)
        return draft

    def proposal(self, tier: int) -> Proposal:
        return Proposal(self.moves, self.names, self.findings, self.source, tier)


def simple(source: str, hints: Hints) -> Iterator[Proposal]:
    """Compositions and single moves; equal kernels may come more than once."""
    start = _Draft(source)
    base = start.first(BEFORE, hints)
    for draft in _compositions(base, hints):
        yield draft.first(AFTER, hints).proposal(0)
    plain = base.first(AFTER, hints)
    if plain.moves:
        yield plain.proposal(0)
    for draft in _moves(base, hints):
        yield draft.proposal(1)
    if base.moves:
        yield base.proposal(1)


def _compositions(base: _Draft, hints: Hints) -> Iterator[_Draft]:
    """The first form of every structure, then the second of every one, and so on."""
    families: list[list[_Draft]] = []
    for structure in STRUCTURES:
        drafts = [base]
        for rewrite in structure:
            drafts = [form for draft in drafts for form in draft.forms(rewrite, hints)]
        families.append(drafts)
    for rank in itertools.zip_longest(*families):
        yield from (draft for draft in rank if draft is not None)


def _moves(base: _Draft, hints: Hints) -> Iterator[_Draft]:
    """Every form of the rewrites that leave the structure alone, taken in turn."""
    small = (launch.REWRITE, caching.REWRITE, unroll.REWRITE, address.REWRITE)
    families = [base.forms(rewrite, hints) for rewrite in small]
    turn: Callable[[int], int] = lambda i: 3 if i == 0 else 1  # noqa: E731 - most gain is in the launch
    queues = [list(family) for family in families]
    while any(queues):
        for i, queue in enumerate(queues):
            for _ in range(turn(i)):
                if queue:
                    yield queue.pop(0)


def pairs(source: str, hints: Hints, seed: int) -> Iterator[Proposal]:
    """A move and a launch setting or cache hint on top, drawn by the question's seed."""
    moves = list(_moves(_Draft(source).first(BEFORE, hints), hints))
    chance = random.Random(seed)
    for draft in chance.sample(moves, min(PAIRS, len(moves))):
        for rewrite in (launch.REWRITE, caching.REWRITE):
            forms = draft.forms(rewrite, hints)
            if forms:
                yield chance.choice(forms).proposal(2)
