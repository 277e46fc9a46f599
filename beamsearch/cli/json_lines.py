"""A run as one JSON object a line, for programs."""

from __future__ import annotations

import json
from functools import partial
from typing import IO

from beamsearch.records.event import Event
from beamsearch.run.events import Events


class JsonLines(Events):
    """Writes every event of a run as it happens, in ASCII."""

    def __init__(self, stream: IO[str]) -> None:
        super().__init__(partial(_write, stream))


def _write(stream: IO[str], event: Event) -> None:
    stream.write(json.dumps(event.model_dump(mode="json")) + "\n")
    stream.flush()
