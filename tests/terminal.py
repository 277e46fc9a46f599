"""A real terminal: tmux, of a given size, in which a command runs and keys are pressed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

needs_tmux = pytest.mark.skipif(
    shutil.which("tmux") is None, reason="needs tmux, which is a real terminal for a test"
)
FLAGS = ("alternate_on", "cursor_flag", "wrap_flag")


class Terminal:
    """One pane. The shell says `ended with CODE` under what a command leaves."""

    def __init__(self, folder: Path, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self._folder = folder
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", columns, "-y", rows, "sh")

    def _tmux(self, *arguments: object) -> str:
        words = ["tmux", "-u", "-S", str(self._folder / "socket"), *map(str, arguments)]
        return subprocess.run(words, check=True, capture_output=True, text=True).stdout

    def start(self, command: list[str], environment: dict[str, str]) -> None:
        """Run a command in place of what was there; its raw output is kept."""
        script = [f"export {name}={shlex.quote(value)}" for name, value in environment.items()]
        script += [
            "unset COLUMNS LINES",
            "trap : INT",
            shlex.join(command),
            'echo "ended with $?"',
            "cat",
        ]
        path = self._folder / "script"
        path.write_text("\n".join(script))
        self._tmux("respawn-pane", "-k", "sh", path)
        self._tmux("pipe-pane", "-O", f"cat > {self._folder / 'raw'}")

    def screen(self) -> list[str]:
        """The rows as they are now."""
        rows = self._tmux("capture-pane", "-p").splitlines()
        return rows + [""] * (self.rows - len(rows))

    def shown(self) -> str:
        """All that is in the terminal, what scrolled away too, with wrapped lines joined."""
        return self._tmux("capture-pane", "-p", "-J", "-S", "-")

    def raw(self) -> str:
        """What programs wrote since `start`."""
        return (self._folder / "raw").read_bytes().decode(errors="replace")

    def press(self, *keys: str) -> None:
        """Press keys, in tmux's words."""
        self._tmux("send-keys", *keys)

    def flag(self, name: str) -> str:
        """A format of tmux, such as `alternate_on`."""
        return self._tmux("display-message", "-p", f"#{{{name}}}").strip()

    def is_in_order(self) -> bool:
        """Whether the terminal is as programs expect it: first screen, cursor seen, wrapping."""
        return [self.flag(name) for name in FLAGS] == ["0", "1", "1"]

    def wait_for(self, text: str, within_s: float = 120) -> list[list[str]]:
        """Every screen that was seen until one had the text. Fails where none has it in time."""
        seen: list[list[str]] = []
        deadline = time.monotonic() + within_s
        while not any(text in row for row in (seen[-1] if seen else [])):
            assert time.monotonic() < deadline, f"no {text!r} in\n" + "\n".join(self.screen())
            time.sleep(0.1)
            seen.append(self.screen())
        return seen


@contextmanager
def terminal(columns: int = 80, rows: int = 24) -> Iterator[Terminal]:
    """A terminal that is gone afterwards, with what runs in it."""
    with tempfile.TemporaryDirectory(prefix="tty-") as folder:  # a socket's path must be short
        opened = Terminal(Path(folder), columns, rows)
        try:
            yield opened
        finally:
            opened._tmux("kill-server")
