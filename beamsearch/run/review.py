"""Whether a model's look at candidates before they are judged pays. Pure functions.

A flag that is right saves a judgement, most of a minute of a GPU; a flag that is wrong costs a good
kernel. So reviews begin on probation: what they flag is judged all the same, and counted. Once they
have been right often enough, flagged candidates are set aside and go straight to repair, but for
one in CONTROL, which is judged so that the count goes on. They end where they are right less than
half the time, or miss most of what fails. All of it follows from completed rounds, so that every
worker of a round, and a resumed run, decides the same.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from beamsearch.records.candidate import Candidate
from beamsearch.records.run import ReviewScore
from beamsearch.records.verdict import Outcome

PROBATION = 4
"""Flags judged before one is believed: fewer are all right by chance too often."""
BELIEVED = 0.75
"""Share of right flags from which on they are believed: a good kernel thrown away costs more than
a bad one judged."""
TRIED = 8
"""Flags, or failures, after which reviews that do not pay end."""
CONTROL = 4


def score(candidates: Iterable[Candidate]) -> ReviewScore:
    """What reviews said of candidates, against the judge's verdicts. A candidate that was set
    aside, a duplicate, not shown correct, or not reviewed tells nothing."""
    flags = right = failures = missed = set_aside = reviewed = 0
    for candidate in candidates:
        if candidate.forecast is None:
            continue
        outcome = candidate.verdict.outcome
        set_aside += outcome is Outcome.SET_ASIDE
        if outcome in (Outcome.SET_ASIDE, Outcome.DUPLICATE, Outcome.UNPROVEN):
            continue
        reviewed += 1
        failed = outcome is not Outcome.CORRECT
        flags += candidate.forecast.fails
        right += candidate.forecast.fails and failed
        failures += failed
        missed += failed and not candidate.forecast.fails
    return ReviewScore(
        judged=reviewed,
        flags=flags,
        right=right,
        failures=failures,
        missed=missed,
        set_aside=set_aside,
    )


def pays(known: ReviewScore) -> bool:
    """Whether to go on: not where half the flags are wrong, or most failures go unseen."""
    wrong = known.flags >= TRIED and known.right < known.flags / 2
    blind = known.failures >= TRIED and known.missed > known.failures * 3 / 4
    return not (wrong or blind)


def believed(known: ReviewScore, name: str) -> bool:
    """Whether a flagged candidate is set aside instead of judged."""
    if known.flags < PROBATION or known.right < BELIEVED * known.flags:
        return False
    return hashlib.sha256(name.encode()).digest()[0] % CONTROL != 0
