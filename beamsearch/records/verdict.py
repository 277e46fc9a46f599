"""What the judge says of a candidate."""

from enum import StrEnum

from pydantic import model_validator

from beamsearch.records.record import Record


class Outcome(StrEnum):
    """The verdict in one word. Everything but `CORRECT` names what failed."""

    CORRECT = "correct"
    NO_CODE = "no_code"
    INVALID = "invalid"
    """Does not parse, has no entry point, or cannot be bound."""
    DISALLOWED = "disallowed"
    COMPILE_ERROR = "compile_error"
    WRONG = "wrong"
    UNPROVEN = "not_shown_correct"
    """Nothing is known to be wrong, and nothing could show it right here: a GPU would tell."""
    CRASHED = "crashed"
    TIMEOUT = "timeout"
    DUPLICATE = "duplicate"
    """Equal to a candidate seen before; not judged again."""
    SET_ASIDE = "set_aside"
    """A review expects it to fail; not judged."""


class Stage(StrEnum):
    """Where in the judgement, cheapest first."""

    REVIEW = "review"
    """Before the judgement: what a model expects of it."""
    POLICY = "policy"
    LOAD = "load"
    COMPILE = "compile"
    SMOKE = "smoke"
    """Shrunk shapes: in the interpreter without a GPU, on the GPU with one."""
    TRUE_SHAPES = "true_shapes"
    DETERMINISM = "determinism"
    """The same inputs three times."""
    TIMING = "timing"
    OTHER_SHAPES = "other_shapes"
    """Shapes the kernel was not made for: without a GPU they decide where it launches what it
    launches at the problem's own, else they are reported."""
    LAYOUT = "layout"
    """Inputs that are not contiguous or not aligned: reported, never failed."""
    PYTHON = "python"
    """The kernel's own Python, called on the GPU as users will; what it costs is reported."""
    MEMORY = "memory"
    """Every access inside its tensors, under compute-sanitizer."""


class Reach(StrEnum):
    """Which shapes a correct kernel computes."""

    GENERAL = "general"
    SPECIALISED = "specialised"
    """For some shapes alone: it raises at others, or launches other functions and is wrong."""


class Check(Record):
    """One thing that was looked at."""

    stage: Stage
    name: str
    passed: bool
    message: str = ""
    reported: bool = False
    """Shown only; failing it does not fail the candidate."""


class Verdict(Record):
    """The judge's word, with what it rests on."""

    outcome: Outcome
    stage: Stage | None = None
    """The stage that failed; none where the verdict is correct."""
    reason: str = ""
    """One sentence a person can act on; empty where the verdict is correct."""
    checks: list[Check] = []
    not_checked: list[str] = []
    """What could not be verified here, such as true shapes without a GPU."""
    output: str = ""
    """The tail of what the candidate's process printed: shown to people, used for nothing."""
    reach: Reach | None = None
    """None where the verdict is not correct, or nothing but the true shapes was tried."""
    code_fingerprint: str | None = None
    """Hash of the compiled code and launches at the true shapes, where it was compiled."""
    launched: list[str] = []
    """Kernels that a correct one launches at the true shapes; none where that is not known."""
    rms_error: float | None = None
    """Root mean square of a correct one's errors on the first of the problem's own inputs, as a
    share of the output's standard deviation; of several outputs the largest. Without a GPU at
    smaller shapes, where sums are shorter. None of one judged before this was recorded."""

    @model_validator(mode="after")
    def _failure_has_reason(self) -> "Verdict":
        if self.outcome is Outcome.CORRECT:
            if self.stage is not None or self.reason or not any(c.passed for c in self.checks):
                raise ValueError(
                    "a correct verdict rests on checks that passed, and names no failure"
                )
            if any(not (c.passed or c.reported) for c in self.checks):
                raise ValueError("a correct verdict has no failed check but those only reported")
        elif not self.reason:
            raise ValueError("a verdict other than correct says why")
        return self

    @property
    def correct(self) -> bool:
        """Whether the candidate computes the problem, as far as could be checked here."""
        return self.outcome is Outcome.CORRECT


def error_in_words(rms_error: float, *, measured: bool) -> str:
    """Of `Verdict.rms_error`; `measured`: on a GPU, at the true shapes."""
    where = "" if measured else ", at smaller shapes"
    return f"rms {100 * rms_error:.2g}% of the output's standard deviation{where}"


def same_code(twin: str) -> str:
    """The reason of a duplicate that is known by its compiled code."""
    return f"its launches run the same code as those of {twin}; it was not judged again"
