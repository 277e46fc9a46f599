"""Who watches a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from beamsearch.records.candidate import Candidate
    from beamsearch.records.round import RoundRecord
    from beamsearch.records.run import RunRecord
    from beamsearch.search.directions import Plan


class Observer(Protocol):
    """Sees what a run does. Every method may be called from any thread, and returns at once."""

    def run_started(self, record: RunRecord, folder: Path) -> None:
        """The run is set up; its folder exists."""

    def round_started(self, round: int, plan: Plan) -> None:
        """A round begins."""

    def worker(self, worker: int, doing: str, round: int | None = None) -> None:
        """What a worker turns to; without a round, the run itself."""

    def candidate(self, candidate: Candidate) -> None:
        """A candidate has its verdict."""

    def round_ended(self, record: RoundRecord, run: RunRecord) -> None:
        """The round is on disk."""

    def note(self, text: str) -> None:
        """Something a person should know."""

    def stopping(self, at_once: bool) -> None:
        """A person or the system asked the run to stop; with `at_once`, the process ends when this
        returns."""

    def run_stopped(self, record: RunRecord) -> None:
        """The run ends before its end, for the record's `stop_reason`."""

    def run_ended(self, record: RunRecord, folder: Path) -> None:
        """The run has reached its end."""
