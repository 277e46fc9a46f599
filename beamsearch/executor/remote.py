"""The executor of a machine that lacks the run's GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import Any

from beamsearch.errors import Waiting
from beamsearch.gpu.usage import Usage
from beamsearch.records.amounts import amount
from beamsearch.records.job import CompareJob, JudgeJob, ProfileJob, Subject, SweepJob
from beamsearch.records.run import WINNER


class GpuStep(Waiting):
    """Said when the run has stopped: workers that are under way may need more of the GPU."""

    def __init__(self, executor: RemoteExecutor) -> None:
        super().__init__()
        self._executor = executor

    def __str__(self) -> str:
        return (
            f"waits for a GPU step{self._executor.steps}, and this machine has no "
            f"{self._executor.gpu}: move the run's folder to one that has"
        )


class RemoteExecutor:
    """Stands for a GPU on another machine: recorded results serve, and a new job waits for it."""

    measures = True

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.usage = Usage()
        self._lock = threading.Lock()
        self._prepared: list[set[str]] = []
        self._judge: set[str] = set()
        self._others: list[str] = []

    @property
    def steps(self) -> str:
        """What it was asked for, in brackets: ` (to judge 3 kernels)`."""
        with self._lock:
            judge = [f"to judge {amount(len(self._judge), 'kernel')}"] if self._judge else []
            told = ", ".join([*judge, *dict.fromkeys(self._others)])
        return f" ({told})" if told else ""

    def run(self, job: Any) -> Any:
        """Begin no job: raises Waiting."""
        with self._lock:
            match job:
                case JudgeJob(thorough=False, subject=subject):
                    along = [group for group in self._prepared if subject.name in group]
                    self._judge |= {subject.name}.union(*along)
                case ProfileJob():
                    self._others.append("to profile")
                case SweepJob():
                    self._others.append("to tune a kernel")
                case CompareJob(subjects=subjects) if all(s.name != WINNER for s in subjects):
                    self._others.append("to confirm a win")
                case JudgeJob() | CompareJob():
                    self._others.append("the closer look at the winner and its last timing")
        raise GpuStep(self)

    def prepare(self, subjects: Iterable[Subject]) -> None:
        """Begin nothing, but know what is judged along with one of them."""
        with self._lock:
            self._prepared.append({subject.name for subject in subjects})

    def anchor(self, *_: Any) -> None:
        """Time nothing: there is no visit."""

    def missing_isolation(self) -> dict[str, str]:
        """None: no candidate runs here."""
        return {}

    def close(self) -> None:
        """End nothing: no process was started."""
