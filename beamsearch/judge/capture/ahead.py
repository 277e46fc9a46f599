"""Capture and compilation ahead of the GPU: on CPU cores, while somebody else has the lane."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, TypeVar

from pydantic import Field

from beamsearch.errors import Stopped
from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.compiling import Compiled
from beamsearch.judge.capture.forms import AtShape, Captured, Form, moved
from beamsearch.judge.capture.hopeless import reason_hopeless
from beamsearch.judge.capture.launches import MOST_CONFIGS
from beamsearch.judge.capture.plans import differs
from beamsearch.judge.capture.turns import Turns
from beamsearch.judge.once import OncePerMachine
from beamsearch.judge.rejection import COMPILE_S, Log, Rejected, check_entry, guarded, load, parsed
from beamsearch.judge.sandbox.processes import CandidateProcess, ForkServers
from beamsearch.judge.sources import source_key, source_of, write_source
from beamsearch.problem.problem import Problem
from beamsearch.records.job import Subject
from beamsearch.records.plan import Plan
from beamsearch.records.record import Record
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.errors import one_line
from kernel_profiling.gpus import Gpu

CAPTURE_S = 60.0
"""Seconds one capture may take: Triton's front end takes under one for a usual kernel."""
CAPTURES_S = 300.0
"""Seconds all captures of one kernel may take together: 64 configurations of a usual one, each
captured four times, take a minute or two."""
MOST_CALLS = 4
"""Captures of one call, three at least: how many follows from the kernel and the run's secret. The
first, in which it may set up what it keeps, is not compared."""
MOST_BLOCK = 1 << 14
"""A larger power of two is a size."""
USUAL_BLOCK = 1024
"""The largest block of a kernel that does not tell it."""
AT_ONCE = 3
"""One in so many cores captures: kernels that are begun together shall be ready one after the
other, not all at the end, for the GPU takes one at a time."""
BEGUN = 64
"""Threads, so kernels that wait for a turn at once; later ones follow as they came."""
MOST_FORMS = 4 * MOST_CONFIGS
"""Choices of configurations that are tried, of all autotuners of a kernel together."""


Name = TypeVar("Name", bound=Hashable)
Apart = Callable[[str], tuple[Captured, str] | None]
"""Captures a source elsewhere, in a file of this path there; none where that is not to be had, and
it is captured here."""


class Answer(Record):
    """What a process answered about one call: the candidate's word, so all of it is bounded."""

    plan: Plan
    configs: dict[str, list[str]] = Field(default={}, max_length=MOST_CONFIGS)
    """Function -> configurations of its autotuner."""
    by_position: dict[str, str] = Field(default={}, max_length=MOST_CONFIGS)
    """Parameter -> the argument that it was bound to."""

    def pins(self) -> list[dict[str, str]]:
        """Choices of configurations to capture, of several autotuners varied one at a time."""
        chosen = {name: found[0] for name, found in self.configs.items() if found}
        others = [
            {**chosen, name: config} for name, found in self.configs.items() for config in found[1:]
        ]
        return [chosen, *others][:MOST_FORMS]


@dataclass(frozen=True)
class Means:
    """What kernels are captured with."""

    cores: int
    """How many are used."""
    apart: Apart | None = None
    """What captures a source on another machine."""
    once: OncePerMachine | None = None
    """What lanes of this machine share."""


class Captures:
    """Captures and compiles each source once. Thread-safe."""

    def __init__(
        self,
        servers: ForkServers,
        gpu: Gpu,
        arguments: Mapping[str, Any],
        usage: Usage,
        seed: int,
        shapes: Callable[[int], Sequence[tuple[str, Problem]]] = lambda block: [],
        *,
        means: Means,
    ) -> None:
        """`arguments` of the call at the true shapes. `shapes`: the largest block of a kernel ->
        other shapes that it is captured at, with their names."""
        self._servers = servers
        self._gpu = gpu.model_dump(mode="json")
        self._arguments = arguments
        self._shapes = shapes
        self._usage = usage
        self._seed = seed
        self._apart, self._shared = means.apart, means.once
        self._lock = threading.Lock()
        self._begun: dict[str, Future[Captured]] = {}
        self._pool = ThreadPoolExecutor(BEGUN)
        self._turns = Turns(min(means.cores, max(2, means.cores // AT_ONCE)))
        self._compiling_now = threading.Semaphore(means.cores)
        self._apart_now = threading.Semaphore(means.cores)
        self._compilers = ThreadPoolExecutor(means.cores)

    def prepare(self, subjects: Sequence[Subject], scratch: Path) -> None:
        """Start on kernels that will be judged. Returns at once."""
        for source in map(source_of, subjects):
            with suppress(Rejected):  # its judgement says so
                check_entry(source, Log())
                self.begin(write_source(scratch, source), source_key(source))

    def captured(self, source: str, scratch: Path, log: Log) -> tuple[Captured, str]:
        """A kernel's plans, and the path of its file; what was seen is added to the log. Raises
        Rejected."""
        check_entry(source, log)
        path = write_source(scratch, source)
        self._turns.want(source_key(source))
        captured = self.begin(path, source_key(source)).result()
        log.add(captured.log)
        log.code_fingerprint = captured.log.code_fingerprint
        log.launched = captured.log.launched
        if captured.rejection is not None:
            raise captured.rejection
        return captured, path

    def begin(self, path: str, key: str) -> Future[Captured]:
        """Start on a source file, or find it begun; what a lost server ended begins anew."""
        with self._lock:
            begun = self._begun.get(key)
            if begun is None or (begun.done() and (begun.cancelled() or begun.exception())):
                try:
                    begun = self._begun[key] = self._pool.submit(self._capture_anywhere, path, key)
                except RuntimeError as error:
                    raise Stopped("the executor is closed") from error
            return begun

    def at(
        self, path: str, arguments: Mapping[str, Any], pins: Mapping[str, str]
    ) -> Form | Rejected:
        """The kernel for other arguments, its autotuners pinned; or why it takes none such."""
        key = Path(path).parent.name
        try:
            with self._usage.waiting("compilation"):
                with self._opened(path, key, Log()) as process:
                    plan = self._settled(process, key, arguments, pins)
                return self._compiled(plan, pins, brief=True)
        except Rejected as rejection:
            return rejection

    def sweep(self, paths: Mapping[str, str], key: str) -> tuple[dict[str, Form], dict[str, str]]:
        """Forms of one kernel, by name: captured in one process, compiled side by side, each code
        once; and why others are none."""
        with self._usage.waiting("compilation"), self._capturing(key) as process:

            def captured(path: str) -> Plan:
                load(process, path, self._gpu)
                plan = self._settled(process, key, self._arguments, {})
                if reason := reason_hopeless(plan):
                    raise Rejected(Outcome.COMPILE_ERROR, Stage.COMPILE, reason, raised=True)
                return plan

            begun = self._begun_each({name: partial(captured, paths[name]) for name in paths}, {})
        forms: dict[str, Form] = {}
        codes: dict[str, str] = {}
        failed = dict.fromkeys(paths.keys() - begun.keys(), "another form took the process with it")
        for name, form in begun.items():
            found = _outcome(form)
            if isinstance(found, Rejected):
                failed[name] = found.reason
                continue
            code = found.compiled.profile.fingerprint or name
            if codes.setdefault(code, name) == name:
                forms[name] = found
            else:
                failed[name] = f"compiles to the same code as `{codes[code]}`"
        return forms, failed

    def _begun_each(
        self, captures: Mapping[Name, Callable[[], Plan]], pins: Mapping[str, str]
    ) -> dict[Name, Future[Form] | Rejected]:
        """Plans captured one after the other, each being compiled while the next is captured; none
        behind one that ended the process."""
        begun: dict[Name, Future[Form] | Rejected] = {}
        for name, captured in captures.items():
            try:
                begun[name] = self._compilers.submit(self._compiled, captured(), pins, brief=True)
            except Rejected as rejection:
                begun[name] = rejection
                if not rejection.raised:
                    break
        return begun

    def _capturing(self, key: str) -> CandidateProcess:
        return self._servers.fork("capturing", key=key, lifetime_s=CAPTURES_S)

    @contextmanager
    def _opened(self, path: str, key: str, log: Log) -> Iterator[CandidateProcess]:
        """A capturing process with a kernel in it; what it printed goes to the log at its end."""
        process = self._capturing(key)
        try:
            load(process, path, self._gpu)
            yield process
        finally:
            process.end()
            log.output.append(process.output)

    def tuned(self, key: str, tune: Callable[[], dict[int, float]]) -> dict[int, float]:
        """Times of a kernel's forms, by number, which are taken once; milliseconds."""
        return self._shared.get(f"{key}-times", tune) if self._shared is not None else tune()

    def _capture_anywhere(self, path: str, key: str) -> Captured:
        """On another machine, where there is one that can; else here, in turn, where no other lane
        of this machine has done so."""
        with self._usage.waiting("compilation"):
            if self._apart is not None:
                with self._apart_now:
                    found = self._apart(Path(path).read_text())
                if found is not None:
                    return moved(*found, path)
            with self._turns.taken(key) as leave:
                if self._shared is None:
                    return self._capture(path, key, leave)
                made = self._shared.get(key, lambda: (self._capture(path, key, leave), path), leave)
        return moved(*made, path)

    def _capture(self, path: str, key: str, leave: Callable[[], None]) -> Captured:
        """`leave` gives its turn to the next one, once only compiling is left."""
        log = Log()
        try:
            with self._opened(path, key, log) as process:
                log.passed(Stage.LOAD, "import")
                plans = self._true_plans(process, key, log)
                begun = self._begin_elsewhere(process, key, *plans[0])
            with self._compiling_now:
                leave()
                forms = self._compiled_forms(plans)
                if len(forms) == 1:
                    forms = (self.described(forms[0]),)
                elsewhere = tuple(AtShape(*at, _outcome(form)) for at, form in begun.items())
        except Rejected as rejection:
            return Captured(log, rejection=rejection)
        if len(forms) == 1:
            profile = forms[0].compiled.profile
            log.code_fingerprint = profile.fingerprint and profile.fingerprint[:16]
        log.launched = forms[0].launched
        launches = len(forms[0].plan.launches)
        log.passed(Stage.COMPILE, "true shapes", f"{launches} launch{'es' * (launches != 1)}")
        return Captured(log, forms, elsewhere)

    def _true_plans(
        self, process: CandidateProcess, key: str, log: Log
    ) -> list[tuple[Mapping[str, str], Plan]]:
        """A plan for every configuration: of several autotuners one is varied at a time."""
        answer = self._once(process, self._arguments, {})
        if answer.by_position:
            bound = ", ".join(f"{name} is {meant}" for name, meant in answer.by_position.items())
            log.passed(Stage.LOAD, "binding", one_line(f"by position: {bound}"))
        if all(0 in launch.grid for launch in answer.plan.launches):
            raise Rejected(
                Outcome.DISALLOWED, Stage.COMPILE, "no Triton kernel is launched by its call"
            )
        return [(pin, self._settled(process, key, self._arguments, pin)) for pin in answer.pins()]

    def _begin_elsewhere(
        self, process: CandidateProcess, key: str, pins: Mapping[str, str], plan: Plan
    ) -> dict[tuple[str, Problem], Future[Form] | Rejected]:
        """At the other shapes, where a kernel may be unable to run; compilation has begun."""
        shapes = self._shapes(largest_block(plan, sizes_in(self._arguments)))

        def captured(problem: Problem) -> Plan:
            return self._settled(process, key, meta_arguments(problem), pins)

        return self._begun_each({shape: partial(captured, shape[1]) for shape in shapes}, pins)

    def _compiled_forms(self, plans: Sequence[tuple[Mapping[str, str], Plan]]) -> tuple[Form, ...]:
        """Those that compile; equal machine code once. Hopeless ones are not tried where there are
        others. Raises Rejected where none does."""
        plans = [item for item in plans if not reason_hopeless(item[1])] or plans
        begun = [
            self._compilers.submit(self._compiled, plan, pins, brief=len(plans) > 1)
            for pins, plan in plans
        ]
        forms: dict[str, Form] = {}
        rejections: list[Rejected] = []
        for form in map(_outcome, begun):
            if isinstance(form, Rejected):  # a configuration that does not fit is passed over
                rejections.append(form)
            else:
                forms.setdefault(form.compiled.profile.fingerprint or str(len(forms)), form)
        if not forms:
            raise rejections[0]
        return tuple(forms.values())

    def _settled(
        self,
        process: CandidateProcess,
        key: str,
        arguments: Mapping[str, Any],
        pins: Mapping[str, str],
    ) -> Plan:
        """The plan of a call that is the same each time. Raises Rejected where it never is."""
        self._once(process, arguments, pins)
        plan = self._once(process, arguments, pins).plan
        # Drawn alike wherever it is judged, or what it prints would not be the same.
        for _ in range(Random(f"{self._seed}/{key}").randint(1, MOST_CALLS - 2)):
            again = self._once(process, arguments, pins).plan
            if reason := differs(plan, again):
                said = f"does not do the same in each call: {reason}"
                raise Rejected(Outcome.DISALLOWED, Stage.COMPILE, said)
        return plan

    def _once(
        self, process: CandidateProcess, arguments: Mapping[str, Any], pins: Mapping[str, str]
    ) -> Answer:
        told = {"arguments": arguments, "pins": pins}
        answer = guarded(Stage.COMPILE, "host code", process.ask, "capture", CAPTURE_S, **told)
        return parsed(Answer, answer, Stage.COMPILE)

    def described(self, form: Form) -> Form:
        """The form with a profile that tells its instructions. Raises Rejected."""
        if any(launch.instruction_mix for launch in form.compiled.profile.launches):
            return form
        with self._usage.waiting("compilation"):
            return self._compiled(form.plan, form.pins, brief=False)

    def _compiled(self, plan: Plan, pins: Mapping[str, str], *, brief: bool) -> Form:
        """A plan with its machine code, from a process that ends with it. Raises Rejected."""
        told = {"plan": plan.model_dump(mode="json"), "gpu": self._gpu, "brief": brief}
        with self._servers.fork("compiling") as process:
            ask = partial(process.ask, "compile", COMPILE_S, **told)
            answer = guarded(Stage.COMPILE, "compilation", ask)
        return Form(plan, parsed(Compiled, answer, Stage.COMPILE), pins)

    def close(self) -> None:
        """Begin nothing more; what is under way ends with its fork server."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._compilers.shutdown(wait=False, cancel_futures=True)


def _outcome(begun: Future[Form] | Rejected) -> Form | Rejected:
    try:
        return begun if isinstance(begun, Rejected) else begun.result()
    except Rejected as rejection:
        return rejection


def sizes_in(arguments: Mapping[str, Any]) -> set[int]:
    """Sizes and strides of a call's tensors."""
    told = [*arguments["values"].values(), *arguments["state"].values()]
    tensors = [value["tensor"] for value in told if isinstance(value, dict) and "tensor" in value]
    return {number for tensor in tensors for number in (*tensor["size"], *tensor["stride"])}


def largest_block(plan: Plan, sizes: Collection[int]) -> int:
    """The largest power of two among a plan's constants that is none of these sizes: a block's
    length as a rule."""
    words = {value for step in plan.launches for value in step.named.values()}
    numbers = {int(word) for word in words if word.isdecimal()}.difference(sizes)
    blocks = [n for n in numbers if 16 <= n <= MOST_BLOCK and n & (n - 1) == 0]
    return max(blocks, default=USUAL_BLOCK)
