"""A lane that is a process of this machine, as who gives it jobs sees it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import IO, Any, cast

from beamsearch.errors import Stopped
from beamsearch.executor.asked import JOB_S, SILENT_S, Asked
from beamsearch.executor.client import LOG, LaneDied, LaneSpec
from beamsearch.executor.messages import ANSWERS, Answer, Request
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.records.job import Job, Subject
from beamsearch.records.record import R
from beamsearch.records.usage import LaneUse

CLOSE_S = 10.0
"""What a lane may take to end by itself."""
_WATCH_S = 0.2


_standing_by: dict[str, subprocess.Popen[str]] = {}
"""By GPU: a process that imports what a lane needs, and will be told what it is to be."""


def stand_by(gpu_uuid: str) -> None:
    """Begin the process of a lane that will be wanted on this GPU, where none waits. One that
    nobody takes ends with this process."""
    there = _standing_by.get(gpu_uuid)
    if there is None or there.poll() is not None:
        _standing_by[gpu_uuid] = _started(gpu_uuid, subprocess.DEVNULL)


class LaneProcess:
    """Starts a lane's process, and speaks with it. Implements `LaneClient`."""

    def __init__(self, spec: LaneSpec, *, silent_s: float = SILENT_S, job_s: float = JOB_S) -> None:
        self._asked = Asked(silent_s, job_s)
        self.facts = self._asked.facts
        self.placed = _here()
        self._name = spec.name
        self._writing = threading.Lock()
        """Apart, for a lane that hangs reads no more, and then who writes to it waits."""
        self._reason = ""
        self._closing = False
        self._hung = False
        scratch = Path(spec.scratch)
        scratch.mkdir(parents=True, exist_ok=True)
        self._log = scratch / LOG
        self.process = _taken(spec.gpu_uuid or "", self._log)
        self._send(spec.model_dump_json())
        threading.Thread(target=self._listen, daemon=True).start()
        threading.Thread(target=self._watch, daemon=True).start()

    @property
    def alive(self) -> bool:
        """Whether it can still answer."""
        return not self._reason and self.process.poll() is None

    def submit(self, job: Job[R]) -> Future[R]:
        """Begin a job. See `LaneClient`."""
        return self._ask(lambda number: Request.of(number, job), ANSWERS[type(job)])

    def prepare(self, subjects: Sequence[Subject]) -> None:
        """Begin what the CPU has to do for them."""
        self._send(Request(number=0, op="prepare", subjects=list(subjects)).model_dump_json())

    def missing_isolation(self) -> dict[str, str]:
        """What of the isolation the system refuses there. Raises LaneDied."""
        asked: Future[Any] = self._ask(lambda number: Request(number=number, op="isolation"), None)
        return cast("dict[str, str]", asked.result())

    def use(self) -> LaneUse:
        """What it was used for, as it last said."""
        return self._asked.use

    def close(self) -> None:
        """End it and all that it started."""
        self._closing = True
        self._end_of_requests()
        try:
            self.process.wait(CLOSE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._lost()

    def _ask(self, request: Callable[[int], Request], kind: type[Any] | None) -> Future[Any]:
        number, asked = self._asked.add(kind)
        if not self._send(request(number).model_dump_json()):
            self._lost()
        return asked

    def _send(self, text: str) -> bool:
        """Whether the lane was there to be sent it."""
        assert self.process.stdin is not None
        with self._writing:
            try:
                self.process.stdin.write(text + "\n")
                self.process.stdin.flush()
            except (OSError, ValueError):  # it ended, or was closed
                return False
        return True

    def _end_of_requests(self) -> None:
        assert self.process.stdin is not None
        if not self._writing.acquire(timeout=CLOSE_S):
            self.process.kill()  # it reads no more
            return
        try:
            self.process.stdin.close()
        except OSError:  # it ended before
            return
        finally:
            self._writing.release()

    def _listen(self) -> None:
        """Hand out answers until there are no more."""
        assert self.process.stdout is not None
        for text in self.process.stdout:
            if not text.endswith("\n"):
                break  # it was killed as it spoke
            said = Answer.model_validate_json(text)
            if said.number is None and said.error is not None:
                self._reason = said.error
            self._asked.heard(said)
        self.process.wait()
        self._lost()

    def _watch(self) -> None:
        """End a lane that does not answer."""
        while self.alive:
            time.sleep(_WATCH_S)
            told = self._asked.reason_to_give_up()
            if told is None:
                continue
            if self._closing:
                return
            self._reason, self._hung = told, True
            self.process.kill()
            return

    def _lost(self) -> None:
        """The lane is gone: so say all that wait for it."""
        code = self.process.poll()
        if not self._reason:
            last = _last_line(self._log)
            self._reason = f"it ended ({_ending(code)})" + (f": {last}" if last else "")
        self._asked.lost(self._what_to_raise)

    def _what_to_raise(self) -> Exception:
        if self._closing:
            return Stopped("the executor is closed")
        return LaneDied(f"{self._name}: {self._reason}", hung=self._hung)


def _taken(gpu_uuid: str, log: Path) -> subprocess.Popen[str]:
    """The process that stands by for this GPU, else a new one."""
    there = _standing_by.pop(gpu_uuid, None)
    if there is not None and there.poll() is None:
        return there
    with log.open("ab") as file:  # what it says before it knows its log
        return _started(gpu_uuid, file)


def _started(gpu_uuid: str, log: int | IO[bytes]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "beamsearch.executor.lane_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        env=_environment(gpu_uuid),
        text=True,
        encoding="utf-8",
        start_new_session=True,  # Ctrl-C is for the run, which closes its lanes
    )


def _here() -> Future[None]:
    """A place that is there at once."""
    place: Future[None] = Future()
    place.set_result(None)
    return place


def _environment(gpu_uuid: str) -> dict[str, str]:
    """This process's, with its packages, and one GPU or none."""
    own = os.environ | {"PYTHONPATH": scrubbed_environment()["PYTHONPATH"]}
    return own | {"CUDA_VISIBLE_DEVICES": gpu_uuid, "PYTHONUNBUFFERED": "1"}


def _ending(code: int | None) -> str:
    if code is None:
        return "it does not answer"
    return f"killed by signal {-code}" if code < 0 else f"exit code {code}"


def _last_line(log: Path) -> str:
    try:
        lines = log.read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.strip() for line in reversed(lines) if line.strip()), "")
