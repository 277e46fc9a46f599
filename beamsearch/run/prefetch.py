"""Profiles begun before they are needed, so that a profiler starts while the lane is in use."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import TYPE_CHECKING

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.records.candidate import Candidate

if TYPE_CHECKING:
    from beamsearch.run.context import Shared


def begin_profiles(shared: Shared, candidates: Iterable[Candidate]) -> None:
    """Begin the profiles of candidates that will be asked about. Returns at once; whoever asks for
    one waits for it, and meets what went wrong with it."""

    def take(candidate: Candidate) -> None:
        with suppress(BeamsearchError, Stopped):
            shared.profile(candidate)

    for candidate in candidates:
        threading.Thread(target=take, args=(candidate,), daemon=True).start()
