"""A real OpenAI-compatible HTTP server on loopback, answering with a scripted thinker.

`python -m tests.server --port 0` prints its base URL and serves until it is ended; tests use
`with serving() as base_url`. Faults are served first, one a request, in the order given.
"""

from __future__ import annotations

import argparse
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from beamsearch.llm.endpoint import DEFAULT_MODEL
from tests.thinker import PromptBroken, think

FAULTS = (
    "none",
    "429",  # with Retry-After: 1
    "quota",  # 429 that no waiting cures
    "500",
    "drop",  # the connection ends in mid-body
    "slow",  # headers after two seconds
    "endless",  # a body that drips on and never ends
    "invalid_json",
    "html",  # a proxy's error page with status 200
    "empty_choices",
    "untold",  # a whole answer that does not say what it took
    "prose",  # a whole answer that holds nothing of what was asked for
)
SLOW_S = 2.0


@dataclass
class Script:
    """What the server does, and what it has seen."""

    faults: list[str] = field(default_factory=list)
    key: str | None = None
    """Refuse any other; None: take every key, and none."""
    models: tuple[str, ...] = (DEFAULT_MODEL, "thinker-small")
    think: Callable[[str], str] = think
    requests: list[dict] = field(default_factory=list)
    """Every body received by `chat/completions`, faulty answers included."""
    lock: threading.Lock = field(default_factory=threading.Lock)

    def next_fault(self, body: dict) -> str:
        with self.lock:
            self.requests.append(body)
            return self.faults.pop(0) if self.faults else "none"


class Handler(BaseHTTPRequestHandler):
    """One connection. `server.script` says how to behave."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""

    @property
    def script(self) -> Script:
        return self.server.script  # type: ignore[attr-defined]

    def do_GET(self) -> None:
        if not self._allowed():
            return
        if self.path == "/v1/models":
            listed = [{"id": name, "object": "model"} for name in self.script.models]
            self._send(200, {"object": "list", "data": listed})
        else:
            self._error(404, "no such path", "not_found")

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if not self._allowed():
            return
        if self.path != "/v1/chat/completions":
            return self._error(404, "no such path", "not_found")
        try:
            body = json.loads(raw)
            model = body["model"]
            prompt = body["messages"][-1]["content"]
        except (json.JSONDecodeError, KeyError, IndexError, TypeError):
            return self._error(400, "not a chat completion request", "invalid_request_error")
        if model not in self.script.models:
            return self._error(404, f"The model `{model}` does not exist", "model_not_found")
        self._answer(self.script.next_fault(body), model, prompt)

    def _answer(self, fault: str, model: str, prompt: str) -> None:
        if fault == "429":
            return self._error(429, "slow down", "rate_limit_exceeded", {"Retry-After": "1"})
        if fault == "quota":
            return self._error(429, "You exceeded your current quota", "insufficient_quota")
        if fault == "500":
            return self._error(500, "the server had an error", "server_error")
        if fault == "slow":
            time.sleep(SLOW_S)
        try:
            text = "I would rather not say." if fault == "prose" else self.script.think(prompt)
        except PromptBroken as error:
            return self._error(400, f"the prompt is broken: {error}", "invalid_request_error")
        answer = completion(model, prompt, text, choices=fault != "empty_choices")
        if fault in ("drop", "endless"):
            return self._broken_body(answer, endless=fault == "endless")
        if fault == "invalid_json":
            return self._send_bytes(200, json.dumps(answer).encode()[:-20])
        if fault == "html":
            return self._send_bytes(200, b"<html>Bad gateway</html>", kind="text/html")
        if fault == "untold":
            del answer["usage"]
        self._send(200, answer)

    def _allowed(self) -> bool:
        given = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if self.script.key is None or given == self.script.key:
            return True
        # Real endpoints quote the key, or part of it, in their refusal.
        self._error(401, f"Incorrect API key provided: {given}", "invalid_api_key")
        return False

    def _broken_body(self, answer: dict, endless: bool) -> None:
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body) if not endless else 10**9))
        self.end_headers()
        try:
            self.wfile.write(body[: len(body) // 2])
            while endless and not self.server.ending.wait(0.1):  # type: ignore[attr-defined]
                self.wfile.write(b" ")
        except OSError:
            pass  # the client has had enough, which is the point
        self.close_connection = True

    def _error(self, status: int, message: str, code: str, headers: dict | None = None) -> None:
        self._send(status, {"error": {"message": message, "type": code, "code": code}}, headers)

    def _send(self, status: int, body: dict, headers: dict | None = None) -> None:
        self._send_bytes(status, json.dumps(body).encode(), headers=headers)

    def _send_bytes(
        self, status: int, body: bytes, kind: str = "application/json", headers: dict | None = None
    ) -> None:
        try:
            self.send_response(status)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True  # a client that did not wait


def completion(model: str, prompt: str, text: str | list, choices: bool = True) -> dict:
    """A chat completion in the API's form; a token here is four characters."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}] if choices else [],
        "usage": {
            "prompt_tokens": len(prompt) // 4,
            "completion_tokens": len(text) // 4,
            "total_tokens": len(prompt) // 4 + len(text) // 4,
            "prompt_tokens_details": {"cached_tokens": 16},
        },
    }


@contextmanager
def serving(
    faults: Sequence[str] = (), script: Script | None = None, port: int = 0
) -> Iterator[str]:
    """Serve on loopback in threads of this process; gives the base URL, ending in /v1."""
    unknown = set(faults) - set(FAULTS)
    if unknown:
        raise ValueError(f"unknown faults {sorted(unknown)}; known: {', '.join(FAULTS)}")
    script = script or Script()
    script.faults += faults
    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    server.script = script  # type: ignore[attr-defined]
    server.ending = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/v1"
    finally:
        server.ending.set()  # type: ignore[attr-defined]
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--key", help="refuse every other key")
    parser.add_argument("--faults", default="", help=f"comma-separated, of {', '.join(FAULTS)}")
    options = parser.parse_args()
    faults = [name for name in options.faults.split(",") if name]
    with serving(faults, Script(key=options.key), options.port) as base_url:
        print(base_url, flush=True)
        with suppress(KeyboardInterrupt):
            threading.Event().wait()


if __name__ == "__main__":
    main()
