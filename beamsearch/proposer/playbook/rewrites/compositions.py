"""What to try on a kernel, best guess first: whole compositions, then single moves, then pairs."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache

from beamsearch.proposer.playbook.rewrites import (
    access,
    constants,
    contraction,
    launch,
    order,
    rereads,
    residues,
    rows,
    unroll,
)
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.source import Result, Rewrite
from kernel_profiling.extensions import REWRITES, extensions

STRUCTURES: tuple[tuple[Rewrite, ...], ...] = (
    (residues.REWRITE, contraction.REWRITE),
    (rereads.REWRITE,),
    (rows.STRIPS,),
    (rows.ROWS,),
    (contraction.REWRITE,),
    (residues.REWRITE,),
)
"""What changes how the work is cut, most gained first; one of them goes into a composition."""
BEFORE = (constants.REWRITE,)
AFTER = (access.REPACK, unroll.REWRITE, access.ADDRESSES)
"""What is added to a composition where it fits. No run measured `repack` or `address` apart, but
winners hold them: without `address` Triton 3.6 makes 687 instructions of the max pooling's, not
529, and without `repack` 48 loads of the transposed convolution's, not 34."""
SMALL = (
    *(launch.REWRITE, order.GROUPED),
    *(access.CACHE_HINTS, unroll.REWRITE, access.ADDRESSES),
)
"""What leaves the structure alone; rewrites that other packages bring stand beside these."""
PAIRS = 24
"""Pairs of moves looked at when nothing simpler is left."""


@dataclass(frozen=True)
class Proposal:
    """A new kernel, what was done to the old one, and what that answers."""

    source: str
    moves: tuple[str, ...] = ()
    """What was done, step by step; the same move on another kernel reads the same."""
    names: tuple[str, ...] = ()
    """Names of the rewrites."""
    findings: frozenset[str] = frozenset()
    tier: int = 0
    """0: a composition; 1: one move; 2: two moves."""

    @property
    def what(self) -> str:
        """All that was done."""
        return "; ".join(self.moves)

    def forms(self, rewrite: Rewrite, hints: Hints) -> list[Proposal]:
        """Every form of a rewrite of this kernel."""
        names, findings = (*self.names, rewrite.name), self.findings | set(rewrite.findings)
        return [
            Proposal(text, (*self.moves, move), names, findings)
            for move, text in _applied(rewrite, self.source, hints)
        ]

    def first(self, rewrites: tuple[Rewrite, ...], hints: Hints) -> Proposal:
        """The first form of each rewrite that fits, one on the other."""
        draft = self
        for rewrite in rewrites:
            draft = next(iter(draft.forms(rewrite, hints)), draft)
        return draft


@lru_cache(maxsize=1024)
def _applied(rewrite: Rewrite, source: str, hints: Hints) -> tuple[Result, ...]:
    """A kernel's forms: one kernel is asked about again and again, by workers and in rounds."""
    return tuple(rewrite.apply(source, hints))


def simple(source: str, hints: Hints, *, sizes: bool = True) -> Iterator[Proposal]:
    """Compositions and single moves, sizes made constexpr first where they are to be; equal kernels
    may come more than once."""
    base = Proposal(source).first(BEFORE if sizes else (), hints)
    for draft in _compositions(base, hints):
        yield draft.first(AFTER, hints)
    plain = base.first(AFTER, hints)
    if plain.moves:
        yield plain
    for draft in _moves(base, hints):
        yield replace(draft, tier=1)
    if base.moves:
        yield replace(base, tier=1)


def _compositions(base: Proposal, hints: Hints) -> Iterator[Proposal]:
    """The first form of every structure, then the second of every one, and so on."""
    families: list[list[Proposal]] = []
    for structure in STRUCTURES:
        drafts = [base]
        for rewrite in structure:
            drafts = [form for draft in drafts for form in draft.forms(rewrite, hints)]
        families.append(drafts)
    for rank in itertools.zip_longest(*families):
        yield from (draft for draft in rank if draft is not None)


def _moves(base: Proposal, hints: Hints) -> Iterator[Proposal]:
    """Every form of the small rewrites, taken in turn: three of the launch's, where most gain is,
    then one of each other."""
    known: list[Rewrite] = [*SMALL, *extensions(REWRITES).values()]
    queues = [(base.forms(r, hints), 3 if r is launch.REWRITE else 1) for r in known]
    while any(queue for queue, _ in queues):
        for queue, turn in queues:
            yield from queue[:turn]
            del queue[:turn]


def pairs(source: str, hints: Hints, seed: int, *, sizes: bool = True) -> Iterator[Proposal]:
    """A move and a launch setting or cache hint on top, drawn by the question's seed; `sizes` as
    with `simple`."""
    moves = list(_moves(Proposal(source).first(BEFORE if sizes else (), hints), hints))
    chance = random.Random(seed)
    for draft in chance.sample(moves, min(PAIRS, len(moves))):
        for rewrite in (launch.REWRITE, access.CACHE_HINTS):
            forms = draft.forms(rewrite, hints)
            if forms:
                yield replace(chance.choice(forms), tier=2)
