"""Where candidates live: their folders, compile caches and users below the run's scratch folder."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path
from typing import Any

from beamsearch.judge.walls import FIRST_UID

COMMON = "common"
"""Name of the compile cache that only trusted processes write; others begin with a copy."""
USERS_EACH = 10_000
"""User ids for the candidates of one judge."""


class Homes:
    """One source, one user, one compile cache, which its own processes share and no others: a
    candidate could otherwise poison what another one runs. Thread-safe."""

    def __init__(self, scratch: Path) -> None:
        self._scratch = scratch
        self._lock = threading.Lock()
        self._users: dict[str, int] = {}
        self._count = 0

    @property
    def around(self) -> list[str]:
        """The folder around the scratch folder, where that is a run's, with its seed in it."""
        return [str(self._scratch.parent)] if self._scratch.name == ".scratch" else []

    @property
    def common(self) -> Path:
        """The compile cache that only trusted processes write."""
        folder = self._scratch / "triton-cache" / COMMON
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def folder(self, name: str) -> Path:
        """A new folder for a process."""
        with self._lock:
            self._count += 1
            folder = self._scratch / "processes" / f"{name}-{self._count}"
        folder.mkdir(parents=True)
        return folder

    def cache(self, key: str) -> Path:
        """The compile cache of a source, begun with what every kernel's launch needs."""
        caches = self._scratch / "triton-cache"
        folder, common = caches / key, caches / COMMON
        with self._lock:
            if folder.exists():
                return folder
            draft = caches / f"{key}.draft"
            draft.mkdir(parents=True, exist_ok=True)  # of a run that was killed
            if common.is_dir():
                shutil.copytree(common, draft, dirs_exist_ok=True)
            return draft.rename(folder)

    def plan(self, folder: Path, key: str | None) -> dict[str, Any]:
        """What the walls of a process are to leave it: fields of `walls.Plan`."""
        own, needed = [str(folder)], []
        if key is not None:
            own.append(str(self.cache(key)))
            needed.append(str(self._scratch / "sources" / key))
        with self._lock:
            number = self._users.setdefault(key or str(folder), len(self._users))
        return {
            "own": own,
            "needed": [place for place in needed if Path(place).is_dir()],
            "hidden": [str(self._scratch), *self.around],
            "uid": FIRST_UID + os.getpid() % USERS_EACH * USERS_EACH + number % USERS_EACH,
        }
