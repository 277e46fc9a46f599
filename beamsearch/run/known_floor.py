"""The floor as a run knows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.baselines.floor import beaten_floor
from beamsearch.executor.executor import Executor
from beamsearch.gpu.machine import Machine
from beamsearch.problem.problem import Problem
from beamsearch.records.job import FloorJob
from beamsearch.run.progress import Progress

if TYPE_CHECKING:
    from beamsearch.records.measurement import Measurement
    from beamsearch.run.observer import Observer
    from kernel_profiling.profile import Floor


@dataclass(frozen=True)
class KnownFloor:
    """The floor in the run's record: no time of a right kernel is below it without its saying
    so."""

    problem: Problem
    machine: Machine
    executor: Executor
    progress: Progress
    observer: Observer

    def after(self, time: Measurement | None) -> Floor | None:
        """The floor once a right kernel, or the reference, took so long; none where none is known
        yet."""
        floor = self.progress.record.floor
        if floor is None or time is None:
            return floor
        if self.machine.elsewhere is None:
            corrected = beaten_floor(self.problem, floor, time, self.machine)
        else:
            corrected = self.executor.run(FloorJob(known=floor, time=time))
        if corrected != floor:
            self.progress.update(floor=corrected)
        if corrected.corrected not in ("", floor.corrected):
            self.observer.note(corrected.corrected)
        return corrected
