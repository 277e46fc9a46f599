"""A stay of the judge on one GPU: input sets, the runner, and which form of a kernel it judges."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.errors import ProblemError
from beamsearch.gpu.lane import Lane
from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.ahead import Captured, Captures, Form
from beamsearch.judge.rejection import (
    FIRST_CALL_S,
    Log,
    Rejected,
    check_entry,
    guarded,
)
from beamsearch.judge.runner.client import Replay, RunnerProcess
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sources import source_key, write_source
from beamsearch.judge.timing.measure import Visit
from beamsearch.judge.timing.timing import prepare, time_calls
from beamsearch.judge.verification.decide import ShapeSets
from beamsearch.judge.verification.input_set import ALWAYS_DRAWN, InputSet, order_for
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.on_gpu import shapes_for
from beamsearch.judge.verification.python_call import call_python
from beamsearch.problem.problem import Problem
from beamsearch.records.verdict import Stage

if TYPE_CHECKING:
    from kernel_profiling.gpus import Gpu

CLOSE_S = 5.0
"""Seconds to wait for the lane at the end."""
TUNING_CALLS = 5
"""Timed calls by which an autotuned kernel's configuration is chosen."""


class GpuSession:
    """What judging, timing and profiling on one GPU have in common; thread-safe.

    This process holds reference, oracle and input memory on the same GPU; the runner maps the
    inputs. Raises ProblemError where the problem does not fit on the GPU.
    """

    def __init__(
        self,
        problem: Problem,
        gpu: Gpu,
        *,
        device: int,
        servers: ForkServers,
        scratch: Path,
        seed: int,
        usage: Usage | None = None,
    ) -> None:
        import torch

        torch.cuda.set_device(device)
        self._visit = Visit(problem, gpu, device)
        self.device_name = self._visit.device_name
        self.gpu_uuid = self._visit.gpu_uuid
        self._problem = problem
        self._gpu = gpu
        self._device = device
        self._servers = servers
        self._scratch = scratch
        self._seed = seed
        self._usage = usage or Usage()
        self._lane = Lane(self._visit.gpu_uuid, usage=self._usage)
        memory = SharedMemory(f"cuda:{device}")
        self._true = InputSets(problem, f"cuda:{device}", memory, seed)
        self._shapes = ShapeSets(problem, seed, memory)
        shapes = partial(shapes_for, self._shapes, problem)
        self._captures = Captures(servers, gpu, meta_arguments(problem), self._usage, seed, shapes)
        self._runner: RunnerProcess | None = None
        self._chosen: dict[str, Form] = {}
        """Source -> the form that was judged."""
        self._host_us: dict[str, float] = {}

    def _captured(self, source: str, log: Log) -> tuple[Captured, str]:
        """A source's plans, and the path of its file. Raises Rejected."""
        check_entry(source, log)
        path = write_source(self._scratch, source)
        return self._captures.result(path, source_key(source)), path

    def _running(self) -> RunnerProcess:
        """The runner, started anew where a fault took it. Needs the lane."""
        if self._runner is None or not self._runner.alive:
            self._runner = self._open_runner("candidates")
        return self._runner

    def _open_runner(self, name: str, env: dict[str, str] | None = None) -> RunnerProcess:
        log = self._scratch / f"runner-{name}.log"
        return RunnerProcess(self._device, self._visit.l2_bytes, log, env)

    @contextmanager
    def _loaded(self, name: str, form: Form) -> Iterator[Replay]:
        """A form in the runner. Raises Rejected."""
        runner = self._running()
        guarded(
            Stage.COMPILE,
            "loading",
            lambda: runner.load(name, form.plan, form.compiled, FIRST_CALL_S),
        )
        try:
            yield Replay(runner, name, form.plan.touched)
        finally:
            runner.drop(name)

    @contextmanager
    def _settling(self) -> Iterator[None]:
        """Memory as it was for the next candidate: one may have written anywhere."""
        try:
            yield
        finally:
            self._mend()

    def _mend(self) -> None:
        """After each candidate, a correct one too: it may have written anywhere."""
        self._true.mend()
        self._shapes.mend()

    def _form(self, source: str, forms: Sequence[Form]) -> Form:
        """The one form of a kernel, or of an autotuned one's the fastest that is right on new
        values. Needs the lane. Raises Rejected where none is."""
        key = source_key(source)
        if key not in self._chosen:
            self._chosen[key] = forms[0] if len(forms) == 1 else self._fastest(forms)
        return self._chosen[key]

    def _fastest(self, forms: Sequence[Form]) -> Form:
        times: list[tuple[float, int]] = []
        rejection: Rejected | None = None
        timed = self._visit.timed_inputs(self._true, self._true_sets())
        try:
            for number, form in enumerate(forms):
                try:
                    with self._loaded(f"form {number}", form) as replay:
                        prepare(replay, timed, FIRST_CALL_S)
                        samples = time_calls(replay, timed, TUNING_CALLS, 0)
                        times.append((min(sample.ms for sample in samples), number))
                except Rejected as reason:
                    rejection = rejection or reason
                    self._mend()
        finally:
            timed.restore()
        if not times:
            assert rejection is not None
            raise rejection
        return forms[min(times)[1]]

    def _true_sets(self, key: str = "", count: int = ALWAYS_DRAWN) -> list[InputSet]:
        """Those a candidate of this key is run on; the first of them are everybody's. Raises
        ProblemError where they do not fit on the GPU."""
        import torch

        try:
            return self._true.draw(count, order_for(key, self._seed))
        except torch.OutOfMemoryError as error:
            raise ProblemError(
                f"{self._problem.name} does not fit on this GPU with its oracle in float32: "
                f"{str(error).splitlines()[0]}"
            ) from error

    def _call_python(self, source: str, path: str, form: Form, log: Log) -> float:
        """What a call of the source takes on the host, in microseconds; once a source. Needs the
        lane. Raises Rejected."""
        key = source_key(source)
        if key not in self._host_us:
            target = self._device, self._gpu.model_dump(mode="json")
            on = self._true, self._true_sets()[0]
            self._host_us[key] = call_python(self._servers, path, key, form, target, on, log)
        return self._host_us[key]

    def close(self) -> None:
        """Give the GPU's memory back; the fork servers must have ended.

        Where somebody keeps the lane (a worker that was given up, within a profiler), the memory
        goes back when this process ends.
        """
        self._captures.close()
        with self._lane.held(CLOSE_S) as held:
            if not held:
                return
            if self._runner is not None:
                self._runner.end()
            self._true.close()
            self._shapes.close()
