"""A kernel's own Python, called on the GPU as users will call it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from beamsearch.judge.capture.forms import Form
from beamsearch.judge.rejection import (
    FIRST_CALL_S,
    GPU_CALL_S,
    Log,
    Rejected,
    guarded,
    load,
    number_in,
)
from beamsearch.judge.runner.client import CALL
from beamsearch.judge.sandbox.processes import CandidateProcess, ForkServers
from beamsearch.judge.sources import source_key, write_source
from beamsearch.judge.verification.inputs import InputSet
from beamsearch.judge.verification.stages import run_sets
from beamsearch.records.job import OwnPythonOf
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Stage
from kernel_profiling.gpus import Gpu

TIMED_CALLS = 20
"""Calls by whose median the host's time is reported."""
OPENED_AT_ONCE = 4
"""Processes that are opened side by side: each starts CUDA."""

Calls = Callable[[str, Form, InputSet, Log], float]
"""Calls a source that a process was opened for; see `OwnPython._called`."""


@dataclass
class OwnPython:
    """Calls each source once, in a process with a GPU. One that holds the lane at a time."""

    servers: ForkServers
    gpu: Gpu
    device: int
    scratch: Path
    _host_us: dict[str, float] = field(default_factory=dict)
    """By the source's key."""

    @contextmanager
    def opened(self, sources: Iterable[str]) -> Iterator[Calls]:
        """What calls these sources: their processes start CUDA before anybody needs the lane."""
        new = {source_key(source) for source in sources} - self._host_us.keys()
        with ThreadPoolExecutor(OPENED_AT_ONCE) as pool:
            begun = {key: pool.submit(self._open, key) for key in new}
            try:
                yield lambda source, *given: self._called(begun, source, *given)
            finally:
                for future in begun.values():
                    if future.exception() is None:
                        future.result().end()

    def _open(self, key: str) -> CandidateProcess:
        process = self.servers.fork("calling", key=key)
        try:
            process.ask("open", FIRST_CALL_S, device=self.device)
        except BaseException:
            process.end()
            raise
        return process

    def _called(
        self,
        begun: dict[str, Future[CandidateProcess]],
        source: str,
        form: Form,
        inputs: InputSet,
        log: Log,
    ) -> float:
        """Microseconds that a call of the source takes on the host; needs the lane.

        Its results on one input set are compared first, as the plan's were. Nothing is ranked by
        what its process tells: the host's time is the kernel's word. Raises Rejected.
        """
        key = source_key(source)
        if key in self._host_us:
            return self._host_us[key]
        stage, told = Stage.PYTHON, Log()
        process = guarded(stage, "the GPU", begun[key].result)
        process.touched = form.plan.touched
        known = {
            "kernels": [kernel.model_dump(mode="json") for kernel in form.plan.kernels],
            "binaries": [binary.model_dump(mode="json") for binary in form.compiled.binaries],
            "pins": dict(form.pins),
        }
        try:
            guarded(stage, "its compiled code", process.ask, "reuse", FIRST_CALL_S, **known)
            load(process, write_source(self.scratch, source), self.gpu.model_dump(mode="json"))
            run_sets(process, [inputs], stage, told, GPU_CALL_S, FIRST_CALL_S)
            what, call = "timing its host code", {"name": CALL, "count": TIMED_CALLS}
            answer = guarded(stage, what, process.ask, "host_time", GPU_CALL_S, **call)
        finally:
            process.end()
            log.output.append(process.output)
        log.checks += told.checks
        self._host_us[key] = number_in(answer.get("host_us"))
        return self._host_us[key]


def with_host_times(
    times: Mapping[str, Measurement], call: Callable[[str], float], which: OwnPythonOf
) -> tuple[dict[str, Measurement], dict[str, str]]:
    """Times of kernels, with those of the host, and why others have none: `call` gives that of one
    by its name, and raises Rejected where its own Python is wrong."""
    told, failed = dict(times), {}
    for name in sorted(times, key=lambda name: times[name].time_ms) if which != "none" else []:
        try:
            told[name] = times[name].with_values(host_us=call(name))
        except Rejected as rejection:
            failed[name] = rejection.reason
            del told[name]
        else:
            if which == "fastest":
                break
    return told, failed


def tell_host_time(host_us: float, time_ms: float, log: Log) -> None:
    """What a call costs in Python, beside the time on the GPU, and whether it is the longer."""
    message = f"{host_us:.0f} us of Python a call, {1e3 * time_ms:.0f} us on the GPU"
    longer = host_us > 1e3 * time_ms
    if longer:
        message += ": a plain call is bound by its host code; launch it from a CUDA graph"
    log.reported(Stage.PYTHON, "host time", not longer, message)
