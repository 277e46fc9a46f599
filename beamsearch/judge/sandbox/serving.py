"""The loop of every process that answers the judge."""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol

from beamsearch.judge.sandbox.protocol import Gone, receive_with_descriptors, send


class Worker(Protocol):
    """Answers requests: each verb is a method `do_…` that takes and gives plain data."""

    descriptors: list[int]
    """What came along with the request at hand."""


def serve(
    link: socket.socket, worker: Worker, describe: Callable[[BaseException], dict[str, Any]]
) -> None:
    """Answer until the judge hangs up; an error is told as `describe` puts it."""
    # Bound now: a candidate that patches the class patches nothing that is called here.
    verbs = {name: getattr(worker, name) for name in dir(worker) if name.startswith("do_")}
    while True:
        try:
            request, worker.descriptors = receive_with_descriptors(link)
        except Gone:
            return
        try:
            answer = verbs["do_" + request.pop("op")](**request)
        except Exception as error:  # noqa: BLE001 - told to the judge, who decides what it means
            answer = {"error": describe(error)}
        send(link, answer)
