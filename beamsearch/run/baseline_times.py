"""The baselines of a run, measured while a model thinks."""

from __future__ import annotations

from beamsearch.baselines.reference_times import measure_baselines
from beamsearch.executor.executor import Executor
from beamsearch.gpu.machine import Machine
from beamsearch.problem.problem import Problem
from beamsearch.records.baselines import BASELINES, Baselines
from beamsearch.records.trace import Trace, recorded
from beamsearch.run.beside import Beside
from beamsearch.run.known_floor import KnownFloor
from beamsearch.run.progress import Progress
from beamsearch.run.stop import StopToken


class BaselineTimes:
    """Measured once, beside the first round's questions: no prompt holds them, and tuning
    torch.compile takes longer than all else that comes before the first candidate."""

    def __init__(
        self,
        trace: Trace,
        problem: Problem,
        machine: Machine,
        executor: Executor,
        source: str,
        floor: KnownFloor,
        progress: Progress,
        stop: StopToken,
    ) -> None:
        """`source` of the input kernel, which is timed beside them."""
        self._trace = trace
        self._problem = problem
        self._machine = machine
        self._executor = executor
        self._source = source
        self._floor = floor
        self._progress = progress
        self._stop = stop
        self._measured: Beside[Baselines] | None = None

    def begin(self) -> None:
        """Start, where nobody has. Returns at once."""
        if self._measured is None:
            self._measured = Beside(self._measure)

    def end(self) -> None:
        """Wait for them, and put them into the run's record; a floor that one is below is
        corrected. Raises what measuring them raised, and Stopped."""
        self.begin()
        assert self._measured is not None
        found = self._measured.result(self._stop)
        if found == self._progress.record.baselines:
            return
        self._progress.update(baselines=found)
        for name in BASELINES:
            self._floor.after(getattr(found, name))

    def _measure(self) -> Baselines:
        return recorded(
            self._trace.round(0) / "baselines.json",
            Baselines,
            lambda: measure_baselines(
                self._executor.run,
                self._source,
                problem=self._problem,
                machine=self._machine,
                quick=self._progress.record.settings.quick,
            ),
        )
