"""The kernel that a run ended with, and what the record says of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.paths import command
from beamsearch.problem.pinned import pinned
from beamsearch.problem.problem import Problem, read_problem
from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.candidate import Candidate
from beamsearch.records.packed import opened_run
from beamsearch.records.run import RunRecord


@dataclass(frozen=True)
class Winner:
    """A run's best kernel."""

    problem: Problem
    candidate: Candidate
    source: str
    """Its autotuners have the configurations that were timed."""
    record: RunRecord

    def told(self) -> str:
        """What the record says, in sentences."""
        where, best = self.record.environment, self.candidate
        reach = f" ({best.verdict.reach})" if best.verdict.reach else ""
        lines = [f"The winner {best.name} of a beam search on {self.problem.name}."]
        if where.gpu:
            lines[0] += f" It was verified{reach} at the shapes below on one {where.gpu}"
            lines[0] += f", driver {where.driver}, PyTorch {where.torch}, Triton {where.triton}."
        else:
            lines[0] += " No GPU has verified it: it was right at smaller shapes in Triton's"
            lines[0] += f" interpreter{reach}, compiled for {where.target}."
        lines.append(self._times())
        if self.problem.dtype == "float32":
            lines.append(f"It was judged by the rule of precision `{self.problem.precision}`.")
        return "\n".join(lines)

    def _times(self) -> str:
        confirmed = self.record.confirmation
        if confirmed is None:
            return f"Its time is {self.candidate.measurement}" + (
                ", by a model; nothing was timed." if not self.record.environment.gpu else "."
            )
        times = []
        for name in BASELINES:
            other = getattr(confirmed.baselines, name)
            if other is not None:
                ratio = other.time_ms / confirmed.winner.time_ms
                times.append(f"{ratio:.2f}x as fast as {called(name)} ({other})")
        if not times:
            return f"It took {confirmed.winner}."
        return f"It took {confirmed.winner}, taking turns: {', '.join(times)}."


def winner_of(folder: Path) -> Winner:
    """The winner of a finished run, packed or not. Raises UsageError where there is none."""
    trace = opened_run(folder)
    record = trace.run_record()
    everyone = {one.name: one for item in trace.completed_rounds() for one in item.candidates}
    best = everyone.get(record.best or "")
    if record.status != "finished" or best is None:
        raise UsageError(
            f"{folder} is not at its end and has no winner yet; {command('resume', folder)}"
        )
    if not best.verdict.correct or best.kernel_file is None:
        raise UsageError(f"{folder}: its best, {best.name}, is not verified; there is no winner")
    problem = replace(read_problem(trace.problem_file), name=record.problem)
    problem = problem.with_dtype(record.problem_dtype).with_precision(record.settings.precision)
    configs = best.measurement.configs if best.measurement else {}
    return Winner(problem, best, pinned(trace.kernel_source(best), configs), record)
