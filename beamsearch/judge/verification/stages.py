"""The stages of a verdict. Each raises `Rejected` where a candidate fails it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from pydantic import BaseModel, ValidationError

from beamsearch.errors import KernelError, ProblemError
from beamsearch.judge.sandbox.conversation import DeadlineMissed, ProcessDied, ToldError
from beamsearch.judge.sandbox.interpreter import TooMuchWork
from beamsearch.judge.sandbox.races import Race
from beamsearch.judge.verification.compare import compare
from beamsearch.judge.verification.inputs import Handout, InputSet, InputSets
from beamsearch.judge.verification.negative_controls import CannotTell
from beamsearch.judge.verification.oracle import Expected
from beamsearch.judge.verification.tolerance import lower_precision
from beamsearch.problem.kernel import check_source
from beamsearch.records.verdict import Check, Outcome, Reach, Stage, Verdict, same_code

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
"""Characters of a reason: it holds what a candidate's process told."""
CHANGED_INPUTS = "the kernel changed its inputs or parameters; write to a new tensor"

# Raised by Triton for code that cannot be compiled or launched on this GPU.
COMPILE_ERRORS = {
    "CompileFailed",
    "CompilationError",
    "CompileTimeAssertionFailure",
    "UnsupportedLanguageConstruct",
    "OutOfResources",
    "PTXASError",
}


class Callee(Protocol):
    """What calls a candidate: its process in the interpreter, or the runner with its plan."""

    touched: Collection[int]
    """Storages of inputs and parameters that its plan reads or writes."""

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """One request. Raises ToldError, ProcessDied or DeadlineMissed."""
        ...


class Rejected(Exception):
    """A candidate failed a stage."""

    def __init__(
        self, outcome: Outcome, stage: Stage, reason: str, *, raised: bool = False
    ) -> None:
        reason = reason if len(reason) <= MOST_REASON else f"{reason[:MOST_REASON]} …"
        super().__init__(reason)
        self.raised = raised
        """Whether the kernel itself raised, and its process is as good as before."""
        self.work = 0.0
        """Interpreted operations that were spent on it, where they were counted."""
        self.outcome = outcome
        self.stage = stage
        self.reason = reason


@dataclass
class Log:
    """What has been looked at so far, on the way to a verdict."""

    checks: list[Check] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    reach: Reach | None = None
    code_fingerprint: str | None = None
    launched: list[str] = field(default_factory=list)

    def passed(self, stage: Stage, name: str, message: str = "") -> None:
        """Note a check that held."""
        self.checks.append(Check(stage=stage, name=name, passed=True, message=message))

    def failed(self, stage: Stage, name: str, message: str) -> None:
        """Note a check that did not hold."""
        self.checks.append(Check(stage=stage, name=name, passed=False, message=message))

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
        return Verdict(
            outcome=Outcome.CORRECT,
            checks=self.checks,
            not_checked=self.not_checked,
            output=self._printed(),
            reach=self.reach,
            code_fingerprint=self.code_fingerprint,
            launched=self.launched,
        )

    def rejected(self, rejection: Rejected) -> Verdict:
        """The verdict of a candidate that failed a stage."""
        self.failed(rejection.stage, rejection.outcome.value, rejection.reason)
        return Verdict(
            outcome=rejection.outcome,
            stage=rejection.stage,
            reason=rejection.reason,
            checks=self.checks,
            not_checked=self.not_checked,
            output=self._printed(),
            code_fingerprint=self.code_fingerprint,
        )

    def _printed(self) -> str:
        return "\n".join(text for text in self.output if text)


def check_entry(source: str, log: Log) -> None:
    """The source parses and has an entry point. Raises Rejected."""
    try:
        check_source(source)
    except KernelError as error:
        raise Rejected(Outcome.INVALID, Stage.POLICY, str(error)) from error
    log.passed(Stage.POLICY, "source", "parses and has an entry point")


def guarded(stage: Stage, what: str, action: Callable[[], Answer]) -> Answer:
    """The action's answer; what goes wrong in the candidate's process becomes a rejection."""
    try:
        return action()
    except DeadlineMissed as error:
        reason = f"{what}: {error}; its process was ended"
        raise Rejected(Outcome.TIMEOUT, stage, reason) from error
    except ProcessDied as error:
        raise Rejected(Outcome.CRASHED, stage, f"{what}: {error}") from error
    except ToldError as error:
        raise rejection_of(stage, what, error) from error


def rejection_of(stage: Stage, what: str, error: ToldError) -> Rejected:
    """What an exception in a candidate's process means."""
    details = error.details
    if details.get("binding"):
        return Rejected(Outcome.INVALID, Stage.LOAD, str(error))
    kind = str(details.get("type"))
    message = one_line(str(error))
    quoted = f"at line {details.get('line')} (`{details.get('text', '')}`)"
    at = f" {one_line(quoted, MOST_QUOTED)}" if details.get("line") else ""
    if kind == "Refused":  # by our own code, in the middle of the kernel's
        return Rejected(Outcome.DISALLOWED, stage, f"{what}: {message}", raised=True)
    if kind == TooMuchWork.__name__:
        reason = f"{what}: it takes too many operations to be interpreted"
        rejection = Rejected(Outcome.TIMEOUT, stage, reason, raised=True)
        rejection.work = number_in(details.get("work"))
        return rejection
    if kind in COMPILE_ERRORS:
        reason = f"does not compile{at}: {message}"
        return Rejected(Outcome.COMPILE_ERROR, Stage.COMPILE, reason, raised=True)
    if details.get("interpreter"):
        reason = (
            f"could not be verified: Triton's interpreter cannot run it{at} ({kind}: {message}); "
            "this may be no fault of the kernel, and a GPU would tell"
        )
        return Rejected(Outcome.UNPROVEN, stage, reason)
    return fault_of(stage, what, kind, at, str(error))


def fault_of(stage: Stage, what: str, kind: str, at: str, message: str) -> Rejected:
    """An exception while the kernel was imported or ran: of its own, or because the GPU or its
    memory gave up, or programs did not wait for each other."""
    if kind == Race.__name__:
        hint = "a flag or ticket has to be an atomic, behind the store and ahead of the load"
        reason = f"{what}: a program {message}{at}: programs run in any order, at once; {hint}"
        return Rejected(Outcome.WRONG, stage, reason)
    if "CUDA error" in message or kind in ("CudaError", "AcceleratorError"):
        first = message.splitlines()[0]
        reason = f"{what}: {first}{at}; the kernel probably reads or writes outside its tensors"
        return Rejected(Outcome.CRASHED, stage, reason)
    if kind in ("OutOfMemoryError", "MemoryError"):
        wanted = one_line(message).split(". GPU ")[0]
        return Rejected(Outcome.CRASHED, stage, f"{what}: {kind}{at}: {wanted}")
    if stage is Stage.LOAD:
        reason = f"fails to import{at}: {kind}: {one_line(message)}"
        return Rejected(Outcome.INVALID, stage, reason)
    reason = f"{what}: raises {kind}{at}: {one_line(message)}"
    return Rejected(Outcome.CRASHED, stage, reason, raised=True)


def one_line(text: str, limit: int = 600) -> str:
    """The text on one line; of a long one its beginning and its end, where the error is."""
    text = " ".join(text.split())
    return text if len(text) <= limit else f"{text[: limit // 3]} … {text[-2 * limit // 3 :]}"


def number_in(told: Any) -> float:
    """A number as a candidate's process tells it: finite, and not below zero."""
    return float(told) if isinstance(told, int | float) and 0 <= told < float("inf") else 0.0


def names_in(told: Any) -> list[str]:
    """Names as a candidate's process tells them."""
    return [name for name in told if isinstance(name, str)] if isinstance(told, list) else []


def load(process: Callee, source_file: str, gpu: Mapping[str, Any]) -> None:
    """Import the kernel in its process, for this GPU."""
    guarded(Stage.LOAD, "import", lambda: process.ask("load", LOAD_S, source=source_file, gpu=gpu))


def unseen(seen: Mapping[str, str], log: Log) -> None:
    """Raise Rejected where the compiled code is a candidate's in `seen` (fingerprint -> name)."""
    twin = seen.get(log.code_fingerprint or "")
    if twin is not None:
        raise Rejected(Outcome.DUPLICATE, Stage.COMPILE, same_code(twin))


def parsed(model: type[Parsed], told: object, stage: Stage) -> Parsed:
    """A record as a candidate's process told it. Raises Rejected where it is none."""
    try:
        return model.model_validate(told)
    except ValidationError as error:
        reason = f"its process answered with no {model.__name__}: {one_line(str(error))}"
        raise Rejected(Outcome.CRASHED, stage, reason) from error


def bind(process: Callee, name: str, handout: Handout, timeout_s: float) -> None:
    """Bind an input set under its name."""
    guarded(
        Stage.LOAD,
        "binding",
        lambda: process.ask(
            "bind", timeout_s, name=name, arguments=handout.arguments, storages=handout.storages
        ),
    )


def run_sets(
    process: Callee,
    sets: InputSets,
    chosen: Sequence[InputSet],
    stage: Stage,
    log: Log,
    timeout_s: float,
    first_s: float | None = None,
) -> None:
    """Call the candidate once on each set and compare what comes back; the first call at these
    shapes may take `first_s`, for a kernel that tunes itself there. Raises Rejected, and
    ProblemError where no set turns out to prove anything."""
    strides = ""
    for number, inputs in enumerate(chosen):
        limit_s = timeout_s if number or first_s is None else first_s
        with sets.handout(inputs) as handout:
            bind(process, f"{stage.value} {inputs.label}", handout, limit_s)
            compared = call_once(process, sets, inputs, handout, stage, limit_s)
            strides = strides or compared.strides
            if sets.proves(inputs):
                log.passed(stage, inputs.label, f"right on {shapes(handout)}{compared.excused}")
    if strides:
        log.reported(stage, "strides", False, strides)
    if chosen and not any(sets.proves(inputs) for inputs in chosen):
        raise ProblemError(
            f"{sets.problem.name} cannot tell right from wrong: {'; '.join(sets.dropped)}"
        )


@dataclass(frozen=True)
class Compared:
    """What is told of a right result."""

    excused: str = ""
    """Behind "right": how much of it only rounding explains."""
    strides: str = ""
    """How its strides differ from the reference's."""


def call_once(
    process: Callee,
    sets: InputSets,
    inputs: InputSet,
    handout: Handout,
    stage: Stage,
    timeout_s: float,
    name: str | None = None,
    then: str | None = None,
) -> Compared:
    """Call what is bound under the name (the set's at this stage), and compare. `then` is called
    too before the result is looked at. Raises Rejected."""
    where = place(inputs, handout)
    answer = ask_once(process, inputs, handout, stage, timeout_s, name, then=then)
    return check_result(answer, inputs, sets, handout, stage, where, process.touched)


def ask_once(
    process: Callee,
    inputs: InputSet,
    handout: Handout,
    stage: Stage,
    timeout_s: float,
    name: str | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Call what is bound under the name, and what its process answers. Raises Rejected."""
    handout.poison()
    return guarded(
        stage,
        place(inputs, handout),
        lambda: process.ask(
            "call",
            timeout_s,
            name=name or f"{stage.value} {inputs.label}",
            outputs=handout.outputs,
            storages=handout.output_storages,
            **options,
        ),
    )


def place(inputs: InputSet, handout: Handout) -> str:
    """The input set as a reason tells it."""
    return f"on {inputs.label} inputs of {shapes(handout)}"


def check_result(
    answer: dict[str, Any],
    inputs: InputSet,
    sets: InputSets,
    handout: Handout,
    stage: Stage,
    where: str,
    touched: Collection[int],
) -> Compared:
    """Compare what a call handed over with the oracle. Raises Rejected."""

    def wrong(reason: str) -> Rejected:
        return Rejected(Outcome.WRONG, stage, f"{where}: {reason}")

    if damage := damaged(answer, inputs, sets, handout, touched):
        raise wrong(damage)
    reported = answer.get("results")
    if not isinstance(reported, list) or len(reported) != len(inputs.returned):
        reported = reported if isinstance(reported, list) else []
        kinds = ", ".join(str(told.get("type")) for told in reported if isinstance(told, dict))
        count, wanted = len(reported), len(inputs.returned)
        raise wrong(f"returned {count} values ({kinds[:200]}) where {wanted} are expected")
    for told, expected in zip(reported, inputs.returned, strict=True):
        complaint = misfit(told, expected)
        if complaint:
            raise wrong(complaint)
    excused = compare_values(inputs, sets, handout, wrong)
    strides = [
        other_strides(told, one) for told, one in zip(reported, inputs.returned, strict=True)
    ]
    return Compared(
        excused=f"; rounding of the inputs explains {excused} elements" if excused else "",
        strides="; ".join(text for text in strides if text),
    )


def damaged(
    answer: dict[str, Any],
    inputs: InputSet,
    sets: InputSets,
    handout: Handout,
    touched: Collection[int],
) -> str | None:
    """What was written that should not have been, or should have been and is not, or none. Inputs
    are put back."""
    if guards := names_in(answer.get("guards")):
        return f"the kernel writes outside its tensors: around {', '.join(guards[:3])}"
    changed = handout.changed()
    states = {name: handout.state(name) for name in inputs.updated}
    try:
        if changed.difference(number for number, _ in states.values()):
            return CHANGED_INPUTS
        for name, (number, value) in states.items():
            if number not in changed.union(touched):
                continue  # it is nothing that the kernel has to do with
            expected = inputs.updated[name]
            difference = compare(value, expected.oracle, expected.scale)
            if not difference.passed:
                told = difference.explain(value, expected.oracle)
                return f"{name}, which the reference updates: {told}"
    finally:
        if changed:
            sets.repair(inputs)
    return None


def compare_values(
    inputs: InputSet, sets: InputSets, handout: Handout, wrong: Callable[[str], Rejected]
) -> int:
    """How many elements only rounding explains; none where the set turns out to prove nothing.
    Raises what `wrong` makes of a reason."""
    excused = 0
    for index, result in enumerate(inputs.results(handout)):
        expected = inputs.expected[index]
        try:
            difference = sets.compare(inputs, index, result)
        except CannotTell:
            return 0
        excused += difference.excused
        if not difference.passed:
            raise wrong(difference.explain(result, expected.oracle))
        if inputs.distribution in ("own", "normal"):
            share = difference.relative_rms
            reason = lower_precision(result, share, expected.oracle, expected.scale)
            if reason:
                raise wrong(reason)
    return excused


def other_strides(told: dict[str, Any], expected: Expected) -> str:
    """How an output's strides differ from the reference's, or nothing. Told, never rejected."""
    stride, shape = told.get("stride"), expected.oracle.shape
    if not isinstance(stride, list) or len(stride) != len(expected.stride):
        return ""
    pairs = zip(stride, expected.stride, shape, strict=True)
    if all(got == want or size == 1 for got, want, size in pairs):
        return ""
    return f"an output has strides {tuple(stride)}, the reference's has {expected.stride}"


def misfit(told: Any, expected: Expected) -> str | None:
    """What of an output is not as expected, its values aside, or none."""
    if not isinstance(told, dict) or told.get("type") != "tensor":
        told = told if isinstance(told, dict) else {}
        return f"returned a {told.get('type')} where a tensor is expected"
    shape, dtype = list(expected.oracle.shape), str(expected.dtype).removeprefix("torch.")
    if told.get("shape") != shape:
        return f"output has shape {told.get('shape')} instead of {shape}"
    if told.get("dtype") != dtype:
        return f"output is {told.get('dtype')} instead of {dtype}"
    device = str(told.get("device")).partition(":")[0]
    if device != expected.oracle.device.type:
        return f"output is on {device}, the inputs are on {expected.oracle.device.type}"
    if told.get("aliases_input") and not expected.may_alias:
        return "the output is memory of an input; return a tensor of its own"
    return None


def shapes(handout: Handout) -> str:
    """The inputs' shapes as a person reads them."""
    values = handout.arguments["values"]
    named = {name: values[name] for name in handout.arguments["forward"]}
    return ", ".join(
        f"{name} {tuple(value['tensor']['size'])}"
        for name, value in named.items()
        if isinstance(value, dict) and "tensor" in value
    )
