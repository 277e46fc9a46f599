"""`Run`: what a run left, as the records that stand in its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.api.page import html
from beamsearch.errors import UsageError
from beamsearch.records.candidate import Candidate
from beamsearch.records.packed import opened_run
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord
from beamsearch.records.trace import read_record
from beamsearch.report.numbers import Progress, progress, tell
from kernel_profiling.profile import Profile

if TYPE_CHECKING:
    import pandas as pd

    from beamsearch.api.events import OnEvent

SHOWN = 10
"""Candidates that a notebook shows, the fastest first."""

HTML = """
<p><b>{{ record.problem }}</b> on {{ record.environment.target }}, {{ record.who_thinks }} thinks:
{{ record.status }}{% if record.stop_reason %} ({{ record.stop_reason }}){% endif %}</p>
<p>{{ told }}; {{ record.totals.correct }} of {{ record.totals.candidates }} candidates correct</p>
<table><tr><th>candidate</th><th>parent</th><th>time</th><th>over input</th><th>what</th></tr>
{% for candidate, speedup in fastest %}
<tr><td>{{ candidate.name }}</td><td>{{ candidate.parent or "" }}</td>
<td>{{ candidate.measurement }}</td><td>{{ "%.2f"|format(speedup) }}x</td>
<td style="text-align: left">{{ candidate.description }}</td></tr>
{% endfor %}
</table>
<p>{{ folder }}</p>
"""


class Run:
    """A run in its folder, finished or not. Every property reads the folder anew."""

    def __init__(self, folder: str | Path) -> None:
        """Raises UsageError where no run is there, or not the whole of it."""
        self.folder = Path(folder)
        self._trace = opened_run(self.folder)
        self._trace.run_record()

    @property
    def record(self) -> RunRecord:
        """`run.json`: settings, machine, baselines, floor, rounds in one line each, totals."""
        return self._trace.run_record()

    @property
    def rounds(self) -> list[RoundRecord]:
        """The rounds completed, from round 0, which holds the first kernels."""
        return self._trace.completed_rounds()

    @property
    def candidates(self) -> list[Candidate]:
        """Every kernel that was judged in a completed round, the first ones too."""
        return [candidate for record in self.rounds for candidate in record.candidates]

    @property
    def speedups(self) -> dict[str, float]:
        """How many times as fast as the input kernel each correct candidate is, by name; modelled
        where there was no GPU."""
        return {
            name: 1 / time for name, time in comparable_times(self._trace, self.candidates).items()
        }

    @property
    def progress(self) -> Progress:
        """The best, its time, and how far it is from the baselines and the floor."""
        return progress(self.record)

    @property
    def best(self) -> Candidate | None:
        """The winner, or the best so far; none before the first round is done."""
        name = self.progress.best
        return None if name is None else self.candidate(name)

    def candidate(self, name: str) -> Candidate:
        """The candidate of that name. Raises UsageError where there is none."""
        everyone = {candidate.name: candidate for candidate in self.candidates}
        if name not in everyone:
            raise UsageError(f"{self.folder} has no candidate {name}; it has {', '.join(everyone)}")
        return everyone[name]

    def source(self, name: str | None = None) -> str:
        """The source of a candidate, the best by default. Raises UsageError where it has none."""
        candidate = self.best if name is None else self.candidate(name)
        if candidate is None or candidate.kernel_file is None:
            raise UsageError(f"{name or 'the best'} of {self.folder} has no source")
        return self._trace.kernel_source(candidate)

    def profile(self, name: str | None = None) -> Profile | None:
        """The profile that the run took of a candidate, by default of the best; none where it took
        none."""
        candidate = self.best if name is None else self.candidate(name)
        path = self._trace.profile(candidate.name) if candidate is not None else None
        return read_record(path, Profile) if path is not None and path.is_file() else None

    def to_pandas(self) -> pd.DataFrame:
        """A table with a row a candidate, in the order in which they were made. Raises UsageError
        where pandas is not installed."""
        try:
            import pandas as pd
        except ImportError as error:
            raise UsageError("to_pandas needs pandas: pip install 'beamsearch[pandas]'") from error
        speedups = self.speedups
        rows = [_row(candidate, speedups.get(candidate.name)) for candidate in self.candidates]
        return pd.DataFrame(rows).convert_dtypes()

    def resume(self, *, on_event: OnEvent | None = None, **limits: int | float | None) -> Run:
        """Go on with the run from what is on disk; `limits` (rounds, time_limit_s, max_cost, …) may
        grow. Raises what `optimize` raises, and UsageError for a packed run."""
        from beamsearch.api.events import passing_on
        from beamsearch.gpu.environment import check_platform
        from beamsearch.run.run import resume

        check_platform()
        with passing_on(on_event) as observer:
            resume(self.folder, observer=observer, limits=limits)
        return self

    def __repr__(self) -> str:
        return f"Run({str(self.folder)!r}): {self.record.status}, {tell(self.progress)}"

    def _repr_html_(self) -> str:
        speedups = self.speedups
        correct = [c for c in self.candidates if c.name in speedups]
        correct.sort(key=lambda candidate: -speedups[candidate.name])
        return html(
            HTML,
            record=self.record,
            folder=self.folder,
            told=tell(self.progress),
            fastest=[(candidate, speedups[candidate.name]) for candidate in correct[:SHOWN]],
        )


def _row(candidate: Candidate, speedup: float | None) -> dict[str, Any]:
    """A candidate flat: its own fields, then its verdict's and its measurement's."""
    time = candidate.measurement
    return {
        **candidate.model_dump(
            mode="json", exclude={"verdict", "measurement", "direction", "forecast"}
        ),
        "direction": None if candidate.direction is None else str(candidate.direction),
        "outcome": candidate.verdict.outcome.value,
        "stage": candidate.verdict.stage and candidate.verdict.stage.value,
        "reason": candidate.verdict.reason or None,
        "time_ms": time and time.time_ms,
        "p20_ms": time and time.p20_ms,
        "p80_ms": time and time.p80_ms,
        "source": time and time.source,
        "visit": time and time.visit,
        "speedup": speedup,
    }
