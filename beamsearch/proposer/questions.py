"""What is asked of whoever thinks, and what they answer.

A question is a record; its prompt is rendered from `prompts/<purpose>.j2`. A model answers the
prompt, the playbook answers the question, and both answer with the same text, which
`proposer.replies` reads. So the trace of both looks alike and a recorded reply serves either.
"""

from __future__ import annotations

from typing import Literal, Protocol

from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import Record
from profiling.profile import Finding, Floor, Profile

Purpose = Literal["diagnosis", "variants", "reflection"]


class ProblemCard(Record):
    """The problem as a prompt shows it."""

    name: str
    source: str
    dtype: str
    input_shapes: dict[str, tuple[int, ...]]
    output_shape: tuple[int, ...]
    bindable: list[str]
    """Names a kernel_function may ask for."""


class Attempt(Record):
    """One earlier candidate of this run, condensed."""

    name: str
    parent: str | None
    direction: str | None
    description: str
    outcome: str
    reason: str = ""
    time: str | None = None
    """As printed: `0.541 ms` or `~0.541 ms`."""
    speedup_over_parent: float | None = None


class Memory(Record):
    """What was tried and learned in completed rounds, condensed for the next prompt."""

    attempts: list[Attempt] = []
    lessons: list[str] = []
    patterns_to_avoid: list[str] = []


class Situation(Record):
    """What every question starts from: a parent kernel and what is known of it."""

    round: int
    worker: int
    seed: int
    """Of this run, round and worker: the only source of chance for whoever answers."""
    problem: ProblemCard
    gpu: str
    parent: str
    """Name of the parent candidate."""
    parent_source: str
    parent_time: Measurement | None
    floor: Floor | None
    profile: Profile
    findings: list[Finding]
    annotated_source: str
    direction: Direction
    memory: Memory


class Diagnosis(Record):
    """The answer to a diagnosis question; stands in the trace as `strategy.json`."""

    bottleneck: str
    """A `FindingKind`, or the model's own word."""
    cause: str
    """Why, in a sentence or two, with the lines."""
    evidence: list[str]
    plan: str
    """What to change, concretely."""
    expected_speedup: float | None = None


class DiagnosisQuestion(Situation):
    """What holds this kernel back, seen from the worker's direction, and what to do about it?"""

    purpose: Literal["diagnosis"] = "diagnosis"


class VariantsQuestion(Situation):
    """Write `variants` different kernels that carry the plan out."""

    purpose: Literal["variants"] = "variants"
    diagnosis: Diagnosis
    variants: int
    seen: list[str] = []
    """Fingerprints (`kernel.fingerprint`) of every kernel judged in completed rounds."""


class Variant(Record):
    """One kernel of a reply."""

    description: str
    source: str


class Trial(Record):
    """A variant and how it fared, for reflection."""

    candidate: Candidate
    diff: str
    """Unified diff against the parent."""
    findings_after: list[Finding] = []
    """Of the variant's profile, where one was taken."""


class ReflectionQuestion(Situation):
    """What did the outcome teach?"""

    purpose: Literal["reflection"] = "reflection"
    diagnosis: Diagnosis
    trials: list[Trial]


class Reflection(Record):
    """The answer to a reflection question."""

    summary: str
    lessons: list[str] = []
    """Each holds beyond this one kernel."""
    patterns_to_avoid: list[str] = []


Question = DiagnosisQuestion | VariantsQuestion | ReflectionQuestion


class Reply(Record):
    """The text that came back, and what it cost (as in `records.call.Call`)."""

    text: str
    author: str
    """`playbook`, or the model's name as the endpoint reports it."""
    recorded_sha256: str | None = None
    model: str | None = None
    batch: bool = False
    tokens_in: int | None = None
    tokens_cached: int | None = None
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    latency_s: float | None = None
    retries: int = 0


class Proposer(Protocol):
    """Whoever thinks. No side effects: the same question and prompt may be asked again."""

    name: str
    """As `run.json` names who thinks."""

    def answer(self, question: Question, prompt: str) -> Reply:
        """The reply's text. Raises EndpointError where nobody can be asked."""
