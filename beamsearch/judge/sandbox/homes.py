"""Where candidates live: their folders and users below the run's scratch folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from pathlib import Path
from typing import Any

from beamsearch.judge.sandbox.isolation import FIRST_UID

USERS_EACH = 10_000
"""User ids for the candidates of one judge."""


class Homes:
    """One source, one user, and a folder for each of its processes: a candidate could otherwise
    poison what another one runs. Thread-safe."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._lock = threading.Lock()
        self._users: dict[str, int] = {}
        self._count = 0

    @property
    def around(self) -> list[str]:
        """The folder around the scratch folder, where that is a run's, with its seed in it."""
        return [str(self._scratch.parent)] if self._scratch.name == ".scratch" else []

    def folder(self, name: str) -> Path:
        """A new folder for a process."""
        with self._lock:
            self._count += 1
            folder = self._scratch / "processes" / f"{name}-{self._count}"
        folder.mkdir(parents=True)
        return folder

    def plan(self, folder: Path, key: str | None) -> dict[str, Any]:
        """What the isolation of a process leaves it: fields of `isolation.Plan`."""
        own, needed = [str(folder)], []
        if key is not None:
            needed.append(str(self._scratch / "sources" / key))
        with self._lock:
            number = self._users.setdefault(key or str(folder), len(self._users))
        return {
            "own": own,
            "needed": [place for place in needed if Path(place).is_dir()],
            "hidden": [str(self._scratch), *self.around],
            "uid": FIRST_UID + os.getpid() % USERS_EACH * USERS_EACH + number % USERS_EACH,
        }


def remove(folder: Path) -> None:
    """Take a folder away, whatever a candidate left in it; what the system refuses stays."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # more levels than Python's stack has
        subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)
