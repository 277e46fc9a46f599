"""One of the judge's processes as the judge talks to it: requests with deadlines."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from beamsearch.judge.sandbox import protocol
from beamsearch.judge.sandbox.protocol import Gone


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
        try:
            for places in self._not_handed_over(arguments.get("storages", [])):
                fds = [place["fd"] for place in places]
                protocol.send(self._link, {"op": "map", "places": places}, fds)
                answer = protocol.receive(self._link, deadline)
                if "error" in answer:
                    break
                self._handed_over.update(place["id"] for place in places)
            else:
                protocol.send(self._link, {"op": op, **arguments})
                answer = protocol.receive(self._link, deadline)
        except TimeoutError as error:
            raise DeadlineMissed(f"no answer within {timeout_s:g} s") from error
        except Gone as error:
            raise ProcessDied(self._how_it_died(str(error))) from error
        if "error" in answer:
            details = answer["error"]
            if not isinstance(details, dict):
                raise ProcessDied("it answered what is no answer")
            raise ToldError(details)
        return answer

    def _not_handed_over(self, places: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
        """Memory with a descriptor that the process does not have yet, by the messageful."""
        new = {
            place["id"]: place
            for place in places
            if "fd" in place and place["id"] not in self._handed_over
        }
        remaining = list(new.values())
        while remaining:
            yield remaining[: protocol.MAX_DESCRIPTORS]
            remaining = remaining[protocol.MAX_DESCRIPTORS :]

    def close(self) -> None:
        """Close the socket, which ends the conversation."""
        self._link.close()
