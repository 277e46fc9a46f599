"""What is asked of whoever thinks, and what they answer.

A question is a record; its prompt is rendered from `prompts/<purpose>.j2`. A model answers the
prompt, the playbook answers the question, and both answer with the same text, which
`proposer.replies` reads. So the trace of both looks alike and a recorded reply serves either.
"""

from __future__ import annotations

from typing import Literal, Protocol

from beamsearch.records.call import Metered
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.measurement import Measurement
from beamsearch.records.proposal import Proposal
from beamsearch.records.record import Record
from kernel_profiling.profile import Finding, Floor, Profile

Purpose = Literal["first", "diagnosis", "variants", "repair", "reflection", "review"]


class ProblemCard(Record):
    """The problem as a prompt shows it."""

    name: str
    source: str
    dtype: str
    products: str = ""
    """Cheapest format that products may be computed in: `tf32`, or the dtype; empty in old runs."""
    input_shapes: dict[str, tuple[int, ...]]
    output_shape: tuple[int, ...]
    bindable: dict[str, str]
    """Names a kernel_function may ask for, with a tensor's shape and dtype, or the value; the
    shortest where several stand for one thing."""
    buffers: tuple[str, ...] = ()
    """Those of them that stand for the model's buffers, which its forward may update."""
    gradients: tuple[str, ...] = ()
    """What `backward_function` gives gradients for, in their order; none where it is not asked."""
    narrow_rows: dict[str, int]
    """Tensors whose rows (along the innermost dimension) do not all begin at multiples of 16 bytes,
    with the bytes that they do begin at multiples of."""
    smallest: dict[str, str] = {}
    """Of the inputs and numbers that are others at the smallest shapes where kernels are judged
    too, what they are there; empty where the problem cannot be shrunk."""
    versions: str
    """What kernels are compiled with."""

    def notes(self) -> list[str]:
        """What a reader of the results has to know of how the problem was taken."""
        if not self.buffers:
            return []
        return [
            f"the model is in training mode; what it leaves in {', '.join(self.buffers)} is "
            "compared of kernels that ask for it, and others need not update it"
        ]


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
    modelled: bool = False
    """Whether that time is modelled."""
    parent_time: str | None = None
    """As printed, of a visit that may be another."""
    speedup_over_parent: float | None = None
    is_timed_again: bool = False
    """Whether that speedup is of both taking turns, at the end of their round."""
    expected: float | None = None
    """The speedup over the parent that its plan expected."""
    repair_of: str | None = None
    tuned_from: str | None = None
    is_persons: bool = False


class Shown(Record):
    """A kernel shown in full."""

    name: str
    description: str
    time: str
    source: str
    is_persons: bool = False


class Idea(Record):
    """How often kernels were written for one finding, and what came of it."""

    finding: str
    tried: int
    correct: int
    best_speedup: float | None = None
    """Over the parent, of the correct ones."""


class Earlier(Record):
    """What earlier runs learned, where this run learns from some."""

    lessons: list[str] = []
    """Each with its run's problem, GPU and speedup, what fits this run best first."""
    moves: dict[str, float] = {}
    """What was done there -> mean speedup over the parent, a failure counted as 0."""


class Memory(Record):
    """What was tried and learned in completed rounds, condensed for the next prompt."""

    attempts: list[Attempt] = []
    best: list[Shown] = []
    """The best kernels so far that differ in more than a few lines, slowest first; none that is far
    behind the fastest."""
    ideas: list[Idea] = []
    lessons: list[str] = []
    patterns_to_avoid: list[str] = []
    earlier: Earlier = Earlier()


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
    parent_error: float | None = None
    """As `Verdict.rms_error`."""
    floor: Floor | None
    profile: Profile
    findings: list[Finding]
    annotated_source: str
    direction: Direction
    share: int = 0
    """Which of the parent's workers in this round asks, and how many these are."""
    shares: int = 1
    others: list[str] = []
    """What the other workers of the round are sent to do: parent and direction."""
    memory: Memory
    hints: list[str] = []
    """What people who watch the run advise."""
    tuned: bool = False
    """Whether launch parameters and block sizes are swept after a win, without whoever thinks."""


class Prediction(Record):
    """What a finding could still give once the plan is carried out."""

    finding: str
    """A `FindingKind` of the profile shown."""
    bound_after: float
    """How many times as fast the call could then be at most; 1 where the finding is gone."""


class Sketch(Record):
    """Another way than the plan's, in a sentence or two."""

    idea: str
    expected_speedup: float | None = None


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
    predicted: list[Prediction] = []
    sketches: list[Sketch] = []


class DiagnosisQuestion(Situation):
    """What holds this kernel back, seen from the worker's direction, and what to do about it?"""

    purpose: Literal["diagnosis"] = "diagnosis"


class VariantsQuestion(Situation):
    """Write `variants` different kernels that carry the plan out."""

    purpose: Literal["variants"] = "variants"
    diagnosis: Diagnosis
    variants: int
    other_way: Sketch | None = None
    """What the last of several variants carries out in place of the plan."""
    seen: list[str] = []
    """Fingerprints of every kernel judged in completed rounds: of its source (`kernel.fingerprint`)
    and of its compiled code."""


class Trial(Record):
    """A variant and how it fared, for reflection."""

    candidate: Candidate
    diff: str
    """Unified diff against the kernel it was made from: the parent, or what it repairs."""
    whole: bool = False
    """Whether that is the source itself in place of a diff, which would be longer."""
    findings_after: list[Finding] | None = None
    """Of the variant's profile; None where none was taken."""
    profile_after: Profile | None = None
    over_parent: float | None = None
    """Its parent's time over its own, by ratios where these are of two visits; None where it has no
    time."""


class ReflectionQuestion(Situation):
    """What did the outcome teach?"""

    purpose: Literal["reflection"] = "reflection"
    diagnosis: Diagnosis
    trials: list[Trial]
    gained: bool = True
    """Whether a trial beat the parent by more than the noise."""


class Reflection(Record):
    """The answer to a reflection question."""

    summary: str
    lessons: list[str] = []
    """Each holds beyond this one kernel."""
    patterns_to_avoid: list[str] = []
    dissection: str = ""
    """Where nothing beat the parent: which expectation was wrong, and what would have had to be
    true."""


class RepairQuestion(Situation):
    """Make a candidate that failed compute the problem, without giving its plan up."""

    purpose: Literal["repair"] = "repair"
    diagnosis: Diagnosis
    failed: Candidate
    failed_source: str
    """Its source; where it is a patch that does not apply, the kernel that the patch was for."""
    patch: str = ""
    """That patch."""
    earlier: list[Trial] = []
    """What failed before it in this line: the variant, then its repairs."""
    name: str
    """The candidate that the answer becomes."""


class Concern(Record):
    """What a review expects of one kernel."""

    variant: int
    """Its number among the kernels of the question, from 0."""
    fails: bool
    kind: Literal["none", "compile", "memory", "numerical"] = "none"
    reason: str = ""
    """The line and what is wrong with it; empty where nothing is."""


class Review(Record):
    """The answer to a review question; stands in the trace as `review.json`."""

    concerns: list[Concern]


class ReviewQuestion(Situation):
    """Which of these kernels will the judge refuse?"""

    purpose: Literal["review"] = "review"
    variants: list[Proposal]


class FirstQuestion(Record):
    """Write a first kernel for a problem that has none."""

    purpose: Literal["first"] = "first"
    round: int = 0
    worker: int = 0
    seed: int = 0
    problem: ProblemCard
    gpu: str
    floor: Floor | None


Question = (
    DiagnosisQuestion | VariantsQuestion | RepairQuestion | ReflectionQuestion | ReviewQuestion
)
"""What is asked about a parent kernel."""


def subject(question: Question | FirstQuestion) -> str:
    """What tells questions of one worker and purpose apart: the repair's name; else nothing."""
    return question.name if isinstance(question, RepairQuestion) else ""


class Reply(Metered):
    """The text that came back, and what it took (as in `records.call.Call`)."""

    text: str
    author: str
    """`playbook`, or the model's name as the endpoint reports it."""
    recorded_sha256: str | None = None
    model: str | None = None


class Proposer(Protocol):
    """Whoever thinks. No side effects: the same question and prompt may be asked again."""

    name: str
    """As `run.json` names who thinks."""
    reads_prompts: bool
    """A model. Who answers from the question's facts alone can neither repair nor review."""

    def answer(self, question: Question | FirstQuestion, prompt: str) -> Reply:
        """The reply's text. Raises EndpointError where nobody can be asked."""
