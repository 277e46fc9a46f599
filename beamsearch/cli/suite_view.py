"""What a suite shows as it goes: a line when a problem begins and when it ends, and in a terminal
below them all that are running."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING

from beamsearch.records.trace import Trace
from beamsearch.report.numbers import clock, progress, tell

if TYPE_CHECKING:
    from rich.table import Table

    from beamsearch.records.suite import Entry
    from beamsearch.run.snapshot import SnapshotReader
    from beamsearch.settings import Settings
    from beamsearch.suite.places import Place


class Lines:
    """A line when a problem begins, and one when it ends."""

    def __init__(self, stream: IO[str], folder: Path) -> None:
        self.stream = stream
        self.folder = folder

    def __enter__(self) -> Lines:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to do."""

    def begins(
        self, number: int, count: int, entry: Entry, settings: Settings, places: Sequence[Place]
    ) -> None:
        """Print its name, what it may take, and where."""
        limits = []
        if settings.time_limit_s is not None:
            limits.append(f"until {clock(settings.time_limit_s)} of its own time")
        if settings.max_cost is not None:
            limits.append(f"${settings.max_cost:.2f}")
        most = f", at most {' and '.join(limits)}" if limits else ""
        self.say(f"[{number}/{count}] {entry.name} begins{_on(places)}{most}")

    def ended(self, number: int, count: int, entry: Entry) -> None:
        """Print how it ended."""
        told = entry.reason or ""
        if entry.state == "finished":
            record = Trace(self.folder / entry.name).run_record()
            told = f"{tell(progress(record))}; {record.stop_reason}"
        took = f" after {clock(entry.seconds)}" if entry.seconds else ""
        self.say(f"[{number}/{count}] {entry.name} {entry.state}{took}: {told}")

    def say(self, line: str) -> None:
        """Print a line."""
        self.stream.write(line + "\n")
        self.stream.flush()


class Screen(Lines):
    """The same lines in a terminal, and below them a row for each run that goes on."""

    def __init__(self, stream: IO[str], folder: Path) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(stream, folder)
        self._running: dict[str, tuple[SnapshotReader, str]] = {}
        self._live = Live(
            console=Console(file=stream),
            get_renderable=self._table,
            refresh_per_second=1,
            transient=True,
        )

    def __enter__(self) -> Screen:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def begins(
        self, number: int, count: int, entry: Entry, settings: Settings, places: Sequence[Place]
    ) -> None:
        """Its line, and from now on its row."""
        from beamsearch.run.snapshot import SnapshotReader

        super().begins(number, count, entry, settings, places)
        reader = SnapshotReader(Trace(self.folder / entry.name))
        self._running = {**self._running, entry.name: (reader, _on(places).strip())}

    def ended(self, number: int, count: int, entry: Entry) -> None:
        """Its line; its row goes."""
        rows = self._running.items()
        self._running = {name: row for name, row in rows if name != entry.name}
        super().ended(number, count, entry)

    def say(self, line: str) -> None:
        """Print a line above the rows."""
        self._live.console.print(line, markup=False, highlight=False, soft_wrap=True)

    def _table(self) -> Table:
        from rich.markup import escape
        from rich.table import Table

        table = Table("running", "where", "round", "candidates", "best so far", box=None)
        for name, (reader, where) in self._running.items():
            table.add_row(escape(name), where, *_row(reader))
        return table


def make_watcher(stream: IO[str], folder: Path) -> Lines:
    """What a suite is watched with there."""
    return Screen(stream, folder) if stream.isatty() else Lines(stream, folder)


def _on(places: Sequence[Place]) -> str:
    if lanes := sum(place.lanes for place in places):
        return f" on {lanes} lane{'s' * (lanes > 1)}"
    numbers = [str(place.number) for place in places if place.number is not None]
    return f" on GPU {','.join(numbers)}" if numbers else ""


def _row(reader: SnapshotReader) -> tuple[str, str, str]:
    from beamsearch.errors import UsageError

    try:
        now = reader.read()
    except UsageError:  # its record is not there yet
        return "", "", "begins"
    return str(len(now.rounds)), str(len(now.candidates)), tell(progress(now.record))
