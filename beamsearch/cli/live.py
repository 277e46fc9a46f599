"""The live view of a run in a terminal, and which view this process has."""

from __future__ import annotations

import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.cli.display import STOPPING, PlainDisplay
from beamsearch.cli.json_lines import JsonLines
from beamsearch.cli.screen import draw
from beamsearch.errors import UsageError

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from beamsearch.records.candidate import Candidate
    from beamsearch.records.run import RunRecord
    from beamsearch.records.trace import Trace
    from beamsearch.run.snapshot import Snapshot
    from beamsearch.search.directions import Plan

NO_WRAP, WRAP = "\x1b[?7l", "\x1b[?7h"
"""What is wider than the terminal thinks is cut there, and moves no other line."""
DESCRIPTION = 48
"""Characters of a kernel's description, which stands behind its name and time."""
REREAD_S = 0.5
"""The trace is read again so often; clocks are drawn more often."""


class Screen:
    """The terminal's other screen, with a run on it, drawn from its trace."""

    def __init__(self, console: Console, trace: Trace, word: str) -> None:
        """`word` stands in the last row."""
        from rich.live import Live

        from beamsearch.run.snapshot import SnapshotReader

        self.console = console
        self.word = word
        self.notes: list[str] = []
        """Shown among the last candidates where there is room."""
        self._reader = SnapshotReader(trace)
        self._snapshot: Snapshot | None = None
        self._read_at = 0.0
        self.live = Live(
            get_renderable=self.drawn,
            console=console,
            screen=True,
            refresh_per_second=4,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def start(self) -> None:
        """Take the terminal."""
        self.console.file.write(NO_WRAP)
        self.live.start(refresh=True)

    def stop(self) -> None:
        """Give the terminal back as it was."""
        if self.live.is_started:
            self.live.stop()
            self.console.file.write(WRAP)
            self.console.file.flush()

    def snapshot(self) -> Snapshot | None:
        """The run, at most `REREAD_S` ago; None where it was never read."""
        if time.monotonic() - self._read_at > REREAD_S:
            with suppress(UsageError, OSError):  # files that are being made or removed: later
                self._snapshot = self._reader.read()
            self._read_at = time.monotonic()
        return self._snapshot

    def drawn(self) -> Text:
        """The screen as it is now."""
        from rich.text import Text

        from beamsearch.cli.round_table import candidate_lines

        now = self.snapshot()
        if now is None:
            return Text()
        told = [f"note: {text}" for text in self.notes]
        told += candidate_lines(now.candidates, DESCRIPTION)
        return draw(now, time.time(), self.console.size, self.word, told)


class LiveDisplay(PlainDisplay):
    """One screen while the run goes on; what it printed as lines but for candidates, after it."""

    def __init__(self, console: Console) -> None:
        super().__init__(console.file)
        self.console = console
        self.screen: Screen | None = None
        self.later: list[str] = []
        """What was said while the screen was up."""

    def say(self, text: str) -> None:
        """Print, as soon as the screen is gone."""
        with self.lock:
            if self.screen is None:
                super().say("\n".join(wrapped(text, self.console.width)))
            else:
                self.later.append(text)

    def run_started(self, record: RunRecord, folder: Path) -> None:
        """Print the opening and put up the screen."""
        from beamsearch.records.trace import Trace

        super().run_started(record, folder)
        with self.lock:
            self.screen = Screen(
                self.console, Trace(folder), "Ctrl-C stops the run cleanly, twice at once"
            )
            self.screen.start()

    def round_started(self, round: int, plan: Plan) -> None:
        """Print nothing: the screen shows it."""
        self.activity = self.activity.round_started(time.time())

    def candidate(self, candidate: Candidate) -> None:
        """Nothing: the screen shows it."""

    def note(self, text: str) -> None:
        """Show the note, and print it later."""
        super().note(text)
        if self.screen is not None:
            self.screen.notes.append(text)

    def stopping(self, at_once: bool) -> None:
        """Say what happens now, on the screen where it is up."""
        if self.screen is not None and not at_once:
            self.screen.word = STOPPING
        else:
            super().stopping(at_once)

    def close(self) -> None:
        """Give the terminal back, and print what was said meanwhile."""
        with self.lock:
            screen, self.screen = self.screen, None
            if screen is not None:
                screen.stop()
                for text in self.later:
                    self.say(text)
                self.later.clear()


def wrapped(text: str, width: int) -> list[str]:
    """The lines of a text, broken between words where they are too long; paths stay whole."""
    broken = textwrap.TextWrapper(
        width, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False
    )
    return [part for line in text.splitlines() for part in broken.wrap(line) or [""]]


def make_display(json: bool, json_lines: bool = False) -> PlainDisplay | JsonLines:
    """The view for this process: a screen in a terminal; plain lines elsewhere, on stderr for
    JSON."""
    if json_lines:
        return JsonLines(sys.stdout)
    if json:
        return PlainDisplay(sys.stderr)
    if not sys.stdout.isatty():
        return PlainDisplay(sys.stdout)
    return LiveDisplay(terminal())


def terminal() -> Console:
    """The terminal, as it is before anything is cleaned for it."""
    from rich.console import Console

    return Console(file=sys.__stdout__)
