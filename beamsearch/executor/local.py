"""The executor of this machine: its GPU, or none."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pydantic import BaseModel

from beamsearch.baselines.floor import beaten_floor, measure_floor
from beamsearch.baselines.inductor.capture import compile_reference
from beamsearch.errors import BeamsearchError, ShortOfMemory, UsageError
from beamsearch.executor.executor import timed_again
from beamsearch.gpu.cores import cores
from beamsearch.gpu.usage import Usage
from beamsearch.judge.capture.ahead import Apart, Means
from beamsearch.judge.once import OncePerMachine
from beamsearch.judge.sandbox.clean_environment import remove
from beamsearch.judge.sandbox.processes import ForkServers, ServerLost
from beamsearch.judge.without_gpu import ModellingJudge
from beamsearch.problem.problem import Problem
from beamsearch.records.job import (
    CompareJob,
    CompileJob,
    FloorJob,
    Job,
    JudgeJob,
    ProfileJob,
    Subject,
    SweepJob,
)
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import R

if TYPE_CHECKING:
    from beamsearch.gpu.machine import Machine
    from beamsearch.judge.on_gpu import MeasuringJudge


class LocalExecutor:
    """Runs jobs for one problem on one GPU of this machine, or models them for a target.

    Methods may be called from several threads at once. `scratch` is its own folder: compile caches
    and candidates' files lie there, and may be removed afterwards.
    """

    def __init__(
        self,
        problem: Problem,
        *,
        machine: Machine,
        scratch: Path,
        seed: int,
        interpreter_processes: int = 2,
        profiler: Literal["auto", "compiler"] = "auto",
        strict_nan: bool = False,
        usage: Usage | None = None,
        shared_by: int = 1,
        hidden: Sequence[str] = (),
        apart: Apart | None = None,
        once: OncePerMachine | None = None,
    ) -> None:
        """`shared_by`: executors that share this machine's cores. `hidden`: folders that
        candidates are not to see, where this machine does. `apart`: captures kernels on other
        machines. `once`: what executors of one run on this machine share of its kernels."""
        self.usage = usage or Usage()
        self.measures = machine.measures
        self.gpu = machine.gpu.name
        self._problem = problem
        self._machine = machine
        scratch = scratch.resolve()
        try:
            remove(scratch / "processes")
            scratch.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"cannot write in {scratch}: {error}") from error
        self._servers = ForkServers(scratch, interpreter=not machine.measures, hidden=hidden)
        self._servers.start()
        self._measuring: MeasuringJudge | None = None
        self.visit: str | None = None
        """This stay on the GPU; none where times are modelled."""
        used = cores()
        if machine.measures:
            used = used * 3 // 4  # the runner must not wait for one
        common: dict[str, Any] = {"servers": self._servers, "scratch": scratch, "seed": seed}
        common |= {"usage": self.usage, "strict_nan": strict_nan}
        common["means"] = Means(max(1, used // shared_by), apart, once)
        if machine.device is None:
            slots = max(1, min(interpreter_processes, used // shared_by))
            modelling = ModellingJudge(problem, machine.gpu, slots=slots, **common)
            self._judge: ModellingJudge | MeasuringJudge = modelling
        else:
            from beamsearch.judge.on_gpu import MeasuringJudge

            self._measuring = MeasuringJudge(
                problem,
                machine.gpu,
                device=machine.device,
                use_ncu=profiler != "compiler",
                **common,
            )
            self._judge = self._measuring
            self.gpu, self.visit = self._measuring.device_name, self._measuring.visit

    def run(self, job: Job[R]) -> R:
        """The job's record. Raises BeamsearchError."""
        was_short = False
        try:
            return cast("R", self._run(job))
        except ServerLost:  # its successor is there already; the candidate may be innocent
            pass
        except ShortOfMemory:  # until this is over, what the job took is not given back
            was_short = True
        if was_short and self._measuring is not None:
            self._measuring.make_room()
        return cast("R", self._run(job))

    def _run(self, job: Job[R]) -> BaseModel:
        if isinstance(job, JudgeJob):
            return self._judge.judge(
                job.subject, seen=job.seen, thorough=job.thorough, sanitize=job.sanitize
            )
        if isinstance(job, ProfileJob):
            return self._judge.profile(job.subject, full=job.full)
        if isinstance(job, SweepJob):
            return self._judge.sweep(job.subjects)
        if isinstance(job, FloorJob):
            if job.known is None or job.time is None:
                return measure_floor(self._problem, self._machine, self.usage)
            return beaten_floor(self._problem, job.known, job.time, self._machine)
        return self._measured(job)

    def _measured(self, job: Job[Any]) -> BaseModel:
        """A job that times something."""
        if self._measuring is None:
            raise BeamsearchError("timing needs an NVIDIA GPU; there is none here")
        if isinstance(job, CompileJob):
            assert self._machine.device is not None
            uuid = self._measuring.gpu_uuid
            return compile_reference(self._problem, job.way, self._machine.device, uuid)
        assert isinstance(job, CompareJob)
        return self._measuring.compare(job)

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin what the CPU has to do for what will be judged or timed. Returns at once."""
        self._judge.prepare(subjects)

    def anchor(
        self, subject: Subject, keep: Callable[[Measurement], None], known: Collection[str]
    ) -> None:
        """Time the input kernel in this visit, where that is not known. Raises BeamsearchError."""
        if self.visit is None or self.visit in known:
            return
        keep(timed_again(subject, self.run(CompareJob(subjects=[subject], own_python="none"))))

    def missing_isolation(self) -> dict[str, str]:
        """Parts of the isolation of candidates that the system refuses here, with the reasons."""
        return self._servers.missing_isolation()

    def close(self) -> None:
        """End every process this executor started."""
        self._servers.close()
        self._judge.close()
