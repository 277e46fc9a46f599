"""Faults put between a client and an endpoint: an HTTP proxy on loopback that damages answers.

Requests are passed on as they came, and whole answers back; a fault takes one request each, in the
order given, and only where a model is asked something.
"""

import json
import threading
import urllib.error
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

BROKEN = ("cut", "endless", "invalid_json", "no_choices")
"""Faults in the answer; the others are statuses that come in its place."""


class Between(BaseHTTPRequestHandler):
    """One connection. `server` knows the target, the faults and when to end."""

    protocol_version = "HTTP/1.1"

    def log_message(self, format, *args):
        """Silent."""

    def do_GET(self):
        self._pass_on(None)

    def do_POST(self):
        sent = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        with self.server.lock:
            fault = self.server.faults.pop(0) if self.server.faults else None
        if fault in ("429", "500"):
            with self.server.lock:
                self.server.met.append(fault)
            more = {"Retry-After": "1"} if fault == "429" else {}
            body = json.dumps({"error": {"message": "not now", "type": "busy"}}).encode()
            return self._send(int(fault), body, more)
        return self._pass_on(sent, fault)

    def _pass_on(self, sent, fault=None):
        wanted = ("Authorization", "Content-Type")
        headers = {name: self.headers[name] for name in wanted if self.headers[name]}
        asked = urllib.request.Request(self.server.target + self.path, sent, headers)
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                status, body = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        if fault is None or status != 200:
            return self._send(status, body)
        with self.server.lock:
            self.server.met.append(fault)
        if fault == "invalid_json":
            return self._send(200, body[:-20])
        if fault == "no_choices":
            return self._send(200, json.dumps(json.loads(body) | {"choices": []}).encode())
        return self._begin(body, endless=fault == "endless")

    def _begin(self, body, endless):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(10**9 if endless else len(body)))
        self.end_headers()
        try:
            self.wfile.write(body[: len(body) // 2])
            while endless and not self.server.ending.wait(0.1):
                self.wfile.write(b" ")
        except OSError:
            pass  # the client has had enough, which is the point
        self.close_connection = True

    def _send(self, status, body, more=()):
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in dict(more).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def between(base_url, faults):
    """Serve before `base_url`; gives the proxy's own, and the faults that were met so far."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Between)
    server.daemon_threads = True
    server.target, path = base_url.removesuffix("/v1"), "/v1"
    server.faults, server.met, server.lock = list(faults), [], threading.Lock()
    server.ending = threading.Event()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}{path}", server.met
    finally:
        server.ending.set()
        server.shutdown()
        server.server_close()
        thread.join()
