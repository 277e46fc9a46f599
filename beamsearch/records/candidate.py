"""A kernel under judgement, and the direction it came from."""

import re

from pydantic import field_validator

from beamsearch.records.measurement import Measurement
from beamsearch.records.record import Record
from beamsearch.records.verdict import Verdict

_FINDINGS = re.compile(r" \(answers [a-z_, ]+\)$")


PERSON = "person"
"""Author of a kernel that a person gave the run on its way, and of its tuned forms."""

OPEN = "open"
"""The finding of a direction that names none: its worker looks for what nobody tried."""


class Direction(Record):
    """Which bottleneck a worker goes after, and which plan for it (0 is the first)."""

    finding: str
    """A `kernel_profiling.profile.FindingKind`, or OPEN."""
    plan: int = 0
    again: bool = False
    """Whether the plan was given before, and its code failed."""

    def __str__(self) -> str:
        plan = "" if self.plan == 0 else f", plan {self.plan + 1}"
        return f"{self.finding}{plan}{' once more' if self.again else ''}"


class Forecast(Record):
    """What a review expected of a candidate before it was judged."""

    fails: bool
    reason: str = ""


class Candidate(Record):
    """A kernel, where it came from, and what the judge found."""

    name: str
    """`r3-w1-v0`; its repairs `r3-w1-v0-f1`, `-f2`; its tuned forms `r3-w1-v0-t1`; a first kernel
    is `r0-s0`; one that a person gave is `r3-p0`."""
    parent: str | None = None
    """The kernel of the beam that it is compared with; a repair and a tuned form have that of what
    they come from. None for a first kernel, and for a person's."""
    repair_of: str | None = None
    """The failed candidate that this one repairs."""
    tuned_from: str | None = None
    """The correct candidate that this one is a form of, with other launch parameters or blocks."""
    built_from: str | None = None
    """The kernel that most of its lines come from, of all that its author was shown; none where
    that is none, or in runs recorded before this was measured."""
    built_share: float | None = None
    """The share (0..1) of both kernels' lines that are the same, in order."""
    round: int
    worker: int | None = None
    direction: Direction | None = None
    description: str
    author: str
    """`input`, `playbook`, PERSON, or a model's name."""
    kernel_file: str | None = None
    """Path of the source, relative to the run's folder; none where there was no code."""
    fingerprint: str | None = None
    """Hash of the source without comments, docstrings and layout."""
    verdict: Verdict
    measurement: Measurement | None = None
    """None where the verdict is not correct."""
    confirmed_ratio: float | None = None
    """Its time over the input kernel's as it came of being timed again, beside the best of the
    rounds before; None where it did not seem faster than that, or was not among the fastest."""
    forecast: Forecast | None = None
    """None where it was not reviewed."""

    @field_validator("description")
    @classmethod
    def _without_findings(cls, value: str) -> str:
        """Runs recorded before the playbook left it out hold the finding behind the moves."""
        return _FINDINGS.sub("", value)

    @property
    def is_first(self) -> bool:
        """Whether the run began with it."""
        return self.parent is None and not self.is_persons

    @property
    def is_persons(self) -> bool:
        """Whether a person gave it."""
        return self.author == PERSON

    @property
    def time_ms(self) -> float:
        """Milliseconds, infinite where there is no time."""
        return self.measurement.time_ms if self.measurement else float("inf")
