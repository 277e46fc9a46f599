"""What the judge and its processes say to each other: framed JSON, and tensors as places in shared
memory.

Nothing that comes from a candidate's process is ever unpickled or executed.
"""

from __future__ import annotations

import json
import socket
import struct
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from beamsearch.problem.kernel import CallArguments

HEADER = struct.Struct("!I")
MAX_DESCRIPTORS = 100
"""File descriptors of one message; Linux takes up to 253."""
MAX_MESSAGE = 64 << 20
"""Bytes of one message: an access trace is the largest, a few megabytes."""
MOST_NESTED = 64
"""How deep a message may be nested; a plan is below ten. What is deeper ends in the recursion limit
of whoever writes it out again."""
MOST_INTEGER = 2**64
"""Above every whole number in a message; what is larger fits no float and no line of text."""

Storages = Mapping[int, torch.UntypedStorage] | Sequence[torch.UntypedStorage]


class Gone(Exception):
    """The other end closed the connection, or said something that is no message."""


class Worker:
    """Answers requests: each verb is a method `do_…` that takes and gives plain data."""

    descriptors: Sequence[int] = ()
    """What came along with the request at hand."""

    def describe(self, error: BaseException) -> dict[str, Any]:
        """An error as the judge receives it."""
        raise NotImplementedError

    def serve(self, link: socket.socket) -> None:
        """Answer until the judge hangs up."""
        # Bound now: a candidate that patches the class patches nothing that is called here.
        verbs = {name: getattr(self, name) for name in dir(self) if name.startswith("do_")}
        describe = self.describe
        while True:
            try:
                request, self.descriptors = receive_with_descriptors(link)
            except Gone:
                return
            try:
                answer = verbs["do_" + request.pop("op")](**request)
            except Exception as error:  # noqa: BLE001 - sent to the judge, which decides
                answer = {"error": describe(error)}
            send(link, answer)


def send(sock: socket.socket, message: Mapping[str, Any], descriptors: Sequence[int] = ()) -> None:
    """Send one message, its length and then JSON, and file descriptors with it. Raises Gone."""
    data = json.dumps(message).encode()
    data = HEADER.pack(len(data)) + data
    try:
        sent = socket.send_fds(sock, [data], list(descriptors)) if descriptors else 0
        sock.sendall(data[sent:])
    except OSError as error:
        raise Gone(str(error)) from error


def receive(sock: socket.socket, deadline: float | None = None) -> dict[str, Any]:
    """The next message. Raises Gone, and TimeoutError past the deadline (monotonic seconds)."""
    return _message(sock, _read(sock, HEADER.size, deadline), deadline)


def receive_with_descriptors(sock: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """The next message, with the file descriptors that came along. Raises Gone."""
    try:
        header, descriptors, _, _ = socket.recv_fds(sock, HEADER.size, MAX_DESCRIPTORS)
    except OSError as error:
        raise Gone(str(error)) from error
    if len(header) < HEADER.size:
        raise Gone("the connection was closed")
    return _message(sock, header, None), descriptors


def _message(sock: socket.socket, header: bytes, deadline: float | None) -> dict[str, Any]:
    (size,) = HEADER.unpack(header)
    if size > MAX_MESSAGE:
        raise Gone(f"a message of {size} bytes")
    try:
        message = _plain(json.loads(_read(sock, size, deadline)))
    except (ValueError, RecursionError) as error:
        raise Gone(f"not a message: {error}") from error
    if not isinstance(message, dict):
        raise Gone("not a message")
    return message


def _plain(value: Any, depth: int = 0) -> Any:
    """What JSON allowed to be said, as everything behind can take it: text without halves of
    characters, numbers of 64 bits, few levels. Raises ValueError."""
    if isinstance(value, str):
        return value if value.isascii() else value.encode(errors="replace").decode()
    if isinstance(value, int) and abs(value) >= MOST_INTEGER:
        raise ValueError("a number beyond 64 bits")
    if not isinstance(value, dict | list):
        return value
    if depth == MOST_NESTED:
        raise ValueError(f"more than {MOST_NESTED} levels")
    if isinstance(value, list):
        return [_plain(item, depth + 1) for item in value]
    return {_plain(key): _plain(item, depth + 1) for key, item in value.items()}


def _read(sock: socket.socket, size: int, deadline: float | None) -> bytes:
    data = bytearray()
    while len(data) < size:
        if deadline is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError
            sock.settimeout(left)
        try:
            part = sock.recv(min(size - len(data), 1 << 20))
        except TimeoutError:
            raise
        except OSError as error:
            raise Gone(str(error)) from error
        if not part:
            raise Gone("the connection was closed")
        data += part
    return bytes(data)


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

    def unmap(self, timeout_s: float) -> None:
        """Have the other side give up all memory that was handed over. Raises as `ask`."""
        self.ask("unmap", timeout_s)
        self._handed_over.clear()

    def _exchange(
        self, request: dict[str, Any], deadline: float, descriptors: Sequence[int] = ()
    ) -> dict[str, Any]:
        send(self._link, request, descriptors)
        answer = receive(self._link, deadline)
        if "error" not in answer:
            return answer
        if not isinstance(answer["error"], dict):
            raise ProcessDied("it answered what is no answer")
        raise ToldError(answer["error"])

    def close(self) -> None:
        """Close the socket, which ends the conversation."""
        self._link.close()


def describe_tensor(tensor: torch.Tensor, storage: int, guard: int = 0) -> dict[str, Any]:
    """Where a tensor lies: the index of its storage, behind `guard` bytes, and the view on it.
    `bytes` are those of its own storage."""
    return {
        "storage": storage,
        "bytes": tensor.untyped_storage().nbytes(),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "offset": tensor.storage_offset() + guard // tensor.element_size(),
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
    }


def encode_arguments(
    arguments: CallArguments, storage_of: Callable[[torch.Tensor], int], guard: int = 0
) -> dict[str, Any]:
    """Arguments as JSON; a tensor becomes its place, `storage_of` giving its storage's index and
    `guard` the bytes before its data.

    Raises TypeError for a value that is neither a tensor nor plain.
    """

    def encode(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return {"tensor": describe_tensor(value, storage_of(value), guard)}
        if isinstance(value, tuple):
            return {"tuple": [encode(item) for item in value]}
        if isinstance(value, list):
            return {"list": [encode(item) for item in value]}
        if value is None or isinstance(value, bool | int | float | str):
            return value
        raise TypeError(f"an argument of type {type(value).__name__} cannot be handed to a kernel")

    return {
        "values": {name: encode(value) for name, value in arguments.values.items()},
        "forward": list(arguments.forward),
        "init": encode(arguments.init),
        "state": {name: encode(value) for name, value in arguments.state.items()},
        "gradients": arguments.gradients,
    }


def decode_arguments(
    message: Mapping[str, Any], storages: Storages | None, device: str
) -> CallArguments:
    """The arguments on mapped storages; without any they are for `meta`, which has none."""
    return decode_with(message, lambda place: open_tensor(place, storages, device))


def decode_with(
    message: Mapping[str, Any], opened: Callable[[Mapping[str, Any]], torch.Tensor]
) -> CallArguments:
    """The arguments, with tensors as `opened` gives them for their places, each once."""
    seen: dict[str, torch.Tensor] = {}

    def decode(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        if "tuple" in value:
            return tuple(decode(item) for item in value["tuple"])
        if "list" in value:
            return [decode(item) for item in value["list"]]
        key = json.dumps(value["tensor"])
        if key not in seen:
            seen[key] = opened(value["tensor"])
        return seen[key]

    return CallArguments(
        values={name: decode(value) for name, value in message["values"].items()},
        forward=tuple(message["forward"]),
        init=decode(message["init"]),
        state={name: decode(value) for name, value in message["state"].items()},
        gradients=message["gradients"],
    )


def open_tensor(place: Mapping[str, Any], storages: Storages | None, device: str) -> torch.Tensor:
    """The tensor at a place."""
    dtype = getattr(torch, place["dtype"])
    if storages is None:
        return torch.empty_strided(place["size"], place["stride"], dtype=dtype, device=device)
    tensor = torch.empty(0, dtype=dtype, device=device)
    storage = storages[place["storage"]]
    return tensor.set_(storage, place["offset"], place["size"], place["stride"])
