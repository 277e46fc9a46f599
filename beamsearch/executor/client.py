"""One lane as who gives it jobs sees it, wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Protocol

from beamsearch.errors import BeamsearchError
from beamsearch.gpu.machine import Machine
from beamsearch.problem.problem import Problem
from beamsearch.records.job import Job, Subject
from beamsearch.records.record import R, Record
from beamsearch.records.usage import LaneUse


class LaneDied(BeamsearchError):
    """A lane ended before it answered. Its jobs may run on another; one of them may be why."""

    def __init__(self, message: str, *, hung: bool = False, left: bool = False) -> None:
        super().__init__(message)
        self.hung = hung
        """Whether it was ended because it did not answer."""
        self.left = left
        """Whether the machine that it was on is gone with it: then no job of it need be why."""


LOG = "lane.log"
"""In a lane's folder: what it and its processes print."""
GIVEN = "the one that the cluster gives"
"""In the place of a GPU's UUID, before it is known."""


class LaneSpec(Record):
    """What a lane is to be: all that it needs to know, so that it may begin anywhere."""

    name: str
    """What it is called in messages and in the account of its time."""
    gpu_uuid: str | None
    """The GPU that is its own; on a cluster, `GIVEN`; none where times are modelled."""
    target: str
    """The GPU that is modelled, where there is none."""
    problem: dict[str, Any]
    scratch: str
    """Its own folder, on the machine where it is."""
    shared: str = ""
    """The folder in which lanes of a run on one machine keep what each need not find out; none
    where it shares nothing."""
    hidden: list[str] = []
    """Folders that candidates are not to see, where its machine does."""
    seed: int
    """What the judge's inputs are drawn from: a secret, and the same for every lane of a run."""
    profiler: Literal["auto", "compiler"] = "auto"
    strict_nan: bool = False
    shared_by: int = 1
    """Lanes that share the cores of its machine."""

    @classmethod
    def of(cls, problem: Problem, machine: Machine, scratch: Path, **more: Any) -> LaneSpec:
        """The lane for a problem on a GPU of this machine, or one that models it."""
        return cls(
            **{"gpu_uuid": machine.uuid} | more,
            target=machine.gpu.name,
            problem=asdict(problem) | {"path": str(problem.path), "sizes": dict(problem.sizes)},
            scratch=str(scratch.resolve()),
        )

    def its_problem(self) -> Problem:
        """The problem, which is not loaded by this."""
        return Problem(**self.problem | {"path": Path(self.problem["path"])})


class LaneFacts(Record):
    """What a lane says of itself once it can take jobs."""

    gpu: str
    """Device name, or the target times are modelled for."""
    visit: str | None
    """Its stay on its GPU, as measurements carry it; none where times are modelled."""


class LaneClient(Protocol):
    """A lane that was begun. Its methods may be called from several threads at once.

    It begins when it is made, which returns at once; jobs given before it is ready wait for it.
    A lane does several jobs at once, for the CPU's part of one goes on while another holds the GPU.
    """

    placed: Future[None]
    """Done once it has a place to be in; on a cluster it may wait for one, and then it gets no
    jobs."""
    facts: Future[LaneFacts]
    """Raises what kept it from beginning: a BeamsearchError of its own, or LaneDied."""

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        ...

    def submit(self, job: Job[R]) -> Future[R]:
        """Begin a job. Its future raises the job's BeamsearchError; LaneDied where the lane ended
        first, by itself or because it no longer answered."""
        ...

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """As `Executor.prepare`; on a lane that ended, nothing."""

    def missing_isolation(self) -> dict[str, str]:
        """As `Executor.missing_isolation`. Raises LaneDied."""
        ...

    def use(self) -> LaneUse:
        """What it was used for, as far as is known here; also after its end."""
        ...

    def close(self) -> None:
        """End it and all that it started; jobs that it still has raise Stopped."""
