"""Why a candidate is rejected, and the log of what was looked at on the way to a verdict."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ParamSpec, TypeVar

from pydantic import BaseModel, ValidationError

from beamsearch.errors import KernelError
from beamsearch.judge.sandbox.interpreter import Race, TooMuchWork
from beamsearch.judge.sandbox.processes import CandidateProcess
from beamsearch.judge.sandbox.protocol import DeadlineMissed, ProcessDied, ToldError
from beamsearch.problem.kernel import check_source
from beamsearch.records.verdict import Check, Outcome, Reach, Stage, Verdict, same_code
from kernel_profiling.errors import one_line

Asked = ParamSpec("Asked")
Answer = TypeVar("Answer")
Parsed = TypeVar("Parsed", bound=BaseModel)
LOAD_S = 30.0
"""Seconds a kernel may take to import."""
COMPILE_S = 120.0
"""Seconds all compilations of a call may take; a large unrolled kernel takes tens."""
INTERPRET_S = 30.0
"""Seconds the interpreter may take for one call on shrunk shapes; a usual kernel takes under 1."""
GPU_CALL_S = 20.0
"""Seconds one call on the GPU may take, a first compilation included."""
FIRST_CALL_S = 60.0
"""Seconds for the first call at each shape, and for the first timed ones, in which a candidate may
still tune itself."""
NOT_IN_A_RUN = "other layouts: tried on the winner of a run, and by `verify`"
MOST_QUOTED = 300
"""Characters of a source line in a reason."""
MOST_REASON = 4000
"""Characters of a reason: it quotes messages of a candidate's process."""
# Raised by Triton for code that cannot be compiled or launched on this GPU.
COMPILE_ERRORS = {
    "CompileFailed",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "OutOfResources",
    "PTXASError",
}


class Rejected(Exception):
    """A candidate failed a stage. `raised`: the kernel itself raised, and its process is as good as
    before. `work`: interpreted operations that were spent on it, where they were counted.
    `short_of_memory`: it might pass where there is more."""

    def __init__(
        self,
        outcome: Outcome,
        stage: Stage,
        reason: str,
        *,
        raised: bool = False,
        work: float = 0.0,
        short_of_memory: bool = False,
    ) -> None:
        self.reason = reason if len(reason) <= MOST_REASON else f"{reason[:MOST_REASON]} …"
        super().__init__(self.reason)
        self.outcome, self.stage, self.raised, self.work = outcome, stage, raised, work
        self.short_of_memory = short_of_memory

    def __reduce__(self) -> tuple[Any, ...]:
        told = self.outcome, self.stage, self.reason, self.raised, self.work, self.short_of_memory
        return _rejected, told


def _rejected(*told: Any) -> Rejected:
    """As it was before it was pickled."""
    outcome, stage, reason, raised, work, short_of_memory = told
    return Rejected(
        outcome, stage, reason, raised=raised, work=work, short_of_memory=short_of_memory
    )


OUTSIDE = "; the kernel probably reads or writes outside its tensors"
CUDA_HINTS = {
    **dict.fromkeys(("address", "memory access", "device-side assert"), OUTSIDE),
    "illegal instruction": "; an instruction met what it does not take: look at offsets along "
    "the last dimension of tensor descriptors (multiples of 16 bytes), at operands of tl.dot, at "
    "inline assembly",
    "out of resources": "; it asks for more registers or shared memory than a block may have",
}
"""Words of an error of CUDA -> what is usually behind it."""


@dataclass
class Log:
    """What has been looked at so far, on the way to a verdict."""

    checks: list[Check] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    reach: Reach | None = None
    code_fingerprint: str | None = None
    launched: list[str] = field(default_factory=list)
    rms_error: float | None = None

    def add(self, other: Log) -> None:
        """Note all that another log holds, whose reach counts."""
        self.checks += other.checks
        self.not_checked += other.not_checked
        self.output += other.output
        self.reach = other.reach
        self.rms_error = other.rms_error

    def passed(self, stage: Stage, name: str, message: str = "") -> None:
        """Note a check that held."""
        self.checks.append(Check(stage=stage, name=name, passed=True, message=message))

    def reported(self, stage: Stage, name: str, passed: bool, message: str) -> None:
        """Note what people should know and no verdict rests on."""
        self.checks.append(
            Check(stage=stage, name=name, passed=passed, message=message, reported=True)
        )

    def specialised(self, stage: Stage, name: str, why: str) -> None:
        """Note that the kernel is not for shapes other than the problem's."""
        self.reach = Reach.SPECIALISED
        self.reported(stage, name, False, f"specialised to the problem's own shapes: {why}")

    def correct(self) -> Verdict:
        """The verdict of a candidate that failed nothing."""
        found = {"reach": self.reach, "launched": self.launched, "rms_error": self.rms_error}
        return self._verdict(Outcome.CORRECT, **found)

    def rejected(self, rejection: Rejected) -> Verdict:
        """The verdict of a candidate that failed a stage."""
        name, reason = rejection.outcome.value, rejection.reason
        failed = Check(stage=rejection.stage, name=name, passed=False, message=reason)
        self.checks.append(failed)
        return self._verdict(rejection.outcome, stage=rejection.stage, reason=reason)

    def _verdict(self, outcome: Outcome, **more: Any) -> Verdict:
        return Verdict(
            outcome=outcome,
            checks=self.checks,
            not_checked=self.not_checked,
            output="\n".join(text for text in self.output if text),
            code_fingerprint=self.code_fingerprint,
            **more,
        )


def check_entry(source: str, log: Log) -> None:
    """The source parses and has an entry point. Raises Rejected."""
    try:
        check_source(source)
    except KernelError as error:
        raise Rejected(Outcome.INVALID, Stage.POLICY, str(error)) from error
    log.passed(Stage.POLICY, "source", "parses and has an entry point")


def guarded(
    stage: Stage,
    what: str,
    action: Callable[Asked, Answer],
    *arguments: Asked.args,
    **named: Asked.kwargs,
) -> Answer:
    """The action's answer; what goes wrong in the candidate's process becomes a rejection."""
    try:
        return action(*arguments, **named)
    except DeadlineMissed as error:
        reason = f"{what}: {error}; its process was ended"
        raise Rejected(Outcome.TIMEOUT, stage, reason) from error
    except ProcessDied as error:
        raise Rejected(Outcome.CRASHED, stage, f"{what}: {error}") from error
    except ToldError as error:
        raise rejection_of(stage, what, error) from error


def load(process: CandidateProcess, source_file: str, gpu: Mapping[str, Any]) -> None:
    """Import the kernel in its process, for this GPU. Raises Rejected."""
    guarded(Stage.LOAD, "import", process.ask, "load", LOAD_S, source=source_file, gpu=gpu)


def rejection_of(stage: Stage, what: str, error: ToldError) -> Rejected:
    """What an exception in a candidate's process means: the kernel's own fault, a refusal by our
    code, a GPU or its memory that gave up, or programs that did not wait for each other."""
    details, message, short = error.details, str(error), one_line(str(error))
    kind = str(details.get("type"))
    quoted = f"at line {details.get('line')} (`{details.get('text', '')}`)"
    at = f" {one_line(quoted, MOST_QUOTED)}" if details.get("line") else ""
    outcome, raised, work = Outcome.CRASHED, False, 0.0
    is_short = kind in ("OutOfMemoryError", "MemoryError")
    if details.get("binding"):
        outcome, stage, reason = Outcome.INVALID, Stage.LOAD, message
    elif kind == "Refused":  # by our own code, in the middle of the kernel's
        outcome, reason, raised = Outcome.DISALLOWED, f"{what}: {short}", True
    elif kind == TooMuchWork.__name__:
        outcome, raised, work = Outcome.TIMEOUT, True, number_in(details.get("work"))
        reason = f"{what}: it takes too many operations to be interpreted"
    elif kind in COMPILE_ERRORS:
        outcome, stage, raised = Outcome.COMPILE_ERROR, Stage.COMPILE, True
        reason = f"does not compile{at}: {short}"
    elif details.get("interpreter"):
        outcome = Outcome.UNPROVEN
        reason = (
            f"could not be verified: Triton's interpreter cannot run it{at} ({kind}: {short}); "
            "this may be no fault of the kernel, and a GPU would tell"
        )
    elif kind == Race.__name__:
        hint = "a flag or ticket has to be an atomic, behind the store and ahead of the load"
        outcome = Outcome.WRONG
        reason = f"{what}: a program {message}{at}: programs run in any order, at once; {hint}"
    elif "CUDA error" in message or kind in ("CudaError", "AcceleratorError"):
        first = message.splitlines()[0]
        hint = next((hint for words, hint in CUDA_HINTS.items() if words in first), "")
        reason = f"{what}: {first}{at}{hint}"
    elif is_short:
        reason = f"{what}: {kind}{at}: {short.split('. GPU ')[0]}"
    elif stage is Stage.LOAD:
        outcome, reason = Outcome.INVALID, f"fails to import{at}: {kind}: {short}"
    else:
        reason, raised = f"{what}: raises {kind}{at}: {short}", True
    return Rejected(outcome, stage, reason, raised=raised, work=work, short_of_memory=is_short)


def number_in(told: Any) -> float:
    """A number from a candidate's process: finite, and not below zero."""
    return float(told) if isinstance(told, int | float) and 0 <= told < float("inf") else 0.0


def names_in(told: Any) -> list[str]:
    """Names from a candidate's process."""
    return [name for name in told if isinstance(name, str)] if isinstance(told, list) else []


def unseen(seen: Mapping[str, str], log: Log) -> None:
    """Raise Rejected where the compiled code is a candidate's in `seen` (fingerprint -> name)."""
    twin = seen.get(log.code_fingerprint or "")
    if twin is not None:
        raise Rejected(Outcome.DUPLICATE, Stage.COMPILE, same_code(twin))


def parsed(model: type[Parsed], told: object, stage: Stage) -> Parsed:
    """A record in a result of a candidate's process. Raises Rejected where it is none."""
    try:
        return model.model_validate(told)
    except ValidationError as error:
        reason = f"its process answered with no {model.__name__}: {one_line(str(error))}"
        raise Rejected(Outcome.CRASHED, stage, reason) from error
