"""One of the judge's processes as the judge talks to it: requests with deadlines."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

from beamsearch.judge.sandbox.protocol import MAX_DESCRIPTORS, Gone, receive, send


class ProcessDied(Exception):
    """The process ended by itself; the message says how."""


class DeadlineMissed(Exception):
    """The process did not answer in time."""


class ToldError(Exception):
    """The other process raised; `details` as it describes the error."""

    def __init__(self, details: Mapping[str, Any]) -> None:
        super().__init__(str(details.get("message", "")))
        self.details = dict(details)


class Conversation:
    """Requests over one socket; memory that they name is handed over once."""

    def __init__(self, link: socket.socket, how_it_died: Callable[[str], str]) -> None:
        self._link = link
        self._how_it_died = how_it_died
        self._handed_over: set[int] = set()

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """One request. Raises ToldError, ProcessDied or DeadlineMissed."""
        deadline = time.monotonic() + timeout_s
        named = {place["id"]: place for place in arguments.get("storages", []) if "fd" in place}
        new = [place for key, place in named.items() if key not in self._handed_over]
        try:
            for first in range(0, len(new), MAX_DESCRIPTORS):
                places = new[first : first + MAX_DESCRIPTORS]
                fds = [place["fd"] for place in places]
                self._exchange({"op": "map", "places": places}, deadline, fds)
                self._handed_over.update(place["id"] for place in places)
            return self._exchange({"op": op, **arguments}, deadline)
        except TimeoutError as error:
            raise DeadlineMissed(f"no answer within {timeout_s:g} s") from error
        except Gone as error:
            raise ProcessDied(self._how_it_died(str(error))) from error

    def _exchange(
        self, request: dict[str, Any], deadline: float, descriptors: list[int] | None = None
    ) -> dict[str, Any]:
        send(self._link, request, descriptors or [])
        answer = receive(self._link, deadline)
        if "error" not in answer:
            return answer
        if not isinstance(answer["error"], dict):
            raise ProcessDied("it answered what is no answer")
        raise ToldError(answer["error"])

    def close(self) -> None:
        """Close the socket, which ends the conversation."""
        self._link.close()
