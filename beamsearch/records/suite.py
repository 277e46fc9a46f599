"""Many problems, run one after another: what was asked, and how far each has come."""

from __future__ import annotations

from typing import Literal

from beamsearch.records.record import Record
from beamsearch.settings import Settings

State = Literal["waiting", "running", "finished", "failed", "waits for answers"]
"""`waiting`: for its turn, or for a larger limit; `running`: begun, also where its process was
killed; `failed`: there is no run, or it ended in an error."""


class Entry(Record):
    """One problem of a suite."""

    name: str
    """What its folder in the suite's is called."""
    path: str
    """The problem's file."""
    state: State = "waiting"
    reason: str | None = None
    """In one line, why it failed or what it waits for."""
    seconds: float = 0.0
    """What it took of the suite's time, in every process; of a process that was killed, nothing."""


class Suite(Record):
    """`suite.json`."""

    format: Literal[1] = 1
    settings: Settings
    """Of every run; `time_limit_s` and `max_cost` are the suite's as a whole."""
    entries: list[Entry]
    """In the order in which they are run."""

    def with_entry(self, number: int, **values: object) -> Suite:
        """The suite with these values in one problem's entry."""
        entries = [*self.entries]
        entries[number] = entries[number].with_values(**values)
        return self.with_values(entries=entries)
