"""A lane as a process: `python -m beamsearch.executor.lane_process`, a GPU of its own.

The first line of its standard input says what it is to be (`LaneSpec`), every other line asks
something (`Request`). It answers on what was its standard output; what else is printed goes to
standard error. It ends, with all that it started, when its input ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from beamsearch.errors import BeamsearchError
from beamsearch.executor.client import LaneFacts, LaneSpec
from beamsearch.executor.messages import Answer, Request, kind_of_error

if TYPE_CHECKING:
    from beamsearch.executor.local import LocalExecutor
    from beamsearch.gpu.usage import Usage

BEAT_S = 1.0
"""How often it says that it is there."""
AT_ONCE = 64
"""Jobs at once; those above wait here. A run gives it about as many as it has workers."""
END_S = 20.0
"""What closing may take after the input ended; then the process is gone in any case."""


class Line:
    """The way back, for several threads."""

    def __init__(self, stream: IO[str], usage: Usage) -> None:
        self._stream = stream
        self._usage = usage
        self._lock = threading.Lock()

    def say(self, answer: Answer) -> None:
        """One answer. Where nobody listens any more, the process is about to end."""
        text = answer.with_values(use=self._usage.so_far()).model_dump_json()
        with self._lock:
            try:
                self._stream.write(text + "\n")
                self._stream.flush()
            except BrokenPipeError:
                os._exit(1)


def open_executor(spec: LaneSpec, usage: Usage) -> LocalExecutor:
    """The executor of a lane; its GPU is the only one that this process sees. Raises
    BeamsearchError."""
    from beamsearch.executor.local import LocalExecutor
    from beamsearch.gpu.machine import find_machine, modelled

    machine = modelled(spec.target) if spec.gpu_uuid is None else find_machine(0)
    if machine.uuid != spec.gpu_uuid:
        raise BeamsearchError(f"the GPU {spec.gpu_uuid} is not there (any more)")
    return LocalExecutor(
        spec.its_problem(),
        machine=machine,
        scratch=Path(spec.scratch),
        seed=spec.seed,
        profiler=spec.profiler,
        strict_nan=spec.strict_nan,
        usage=usage,
        shared_by=spec.shared_by,
    )


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    from beamsearch.gpu.usage import Usage

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which closes this
    spec = LaneSpec.model_validate_json(requests.readline())
    usage = Usage()
    line = Line(answers, usage)
    threading.Thread(target=_beat, args=(line,), daemon=True).start()
    try:
        executor = open_executor(spec, usage)
    except BeamsearchError as error:
        line.say(Answer(error=str(error), error_kind=kind_of_error(error)))
        return
    line.say(Answer(facts=LaneFacts(gpu=executor.gpu, visit=executor.visit)))
    idle = _Idle(usage)
    pool = ThreadPoolExecutor(AT_ONCE)
    for text in requests:
        request = Request.model_validate_json(text)
        if request.op == "prepare":
            executor.prepare(request.subjects)
        else:
            idle.begins()
            pool.submit(_answer, executor, line, idle, request)
    _end_soon()
    pool.shutdown(wait=False, cancel_futures=True)
    executor.close()


class _Idle:
    """Books what this lane has no job in as waiting for one."""

    def __init__(self, usage: Usage) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._waiting = ExitStack()
        self._enter = partial(usage.waiting, "a job")
        self._waiting.enter_context(self._enter())

    def begins(self) -> None:
        """One job more."""
        with self._lock:
            self._count += 1
            self._waiting.close()

    def ended(self) -> None:
        """One job less."""
        with self._lock:
            self._count -= 1
            if not self._count:
                self._waiting.enter_context(self._enter())


def _answer(executor: LocalExecutor, line: Line, idle: _Idle, request: Request) -> None:
    said = _done(executor, request)
    idle.ended()
    line.say(said)


def _done(executor: LocalExecutor, request: Request) -> Answer:
    """The answer to a request. A GPU that failed takes the process with it: what it holds of CUDA
    is lost."""
    import torch

    number = request.number
    try:
        if request.op == "isolation":
            return Answer(number=number, record=executor.missing_isolation())
        record: Any = executor.run(request.its_job())
        return Answer(number=number, record=record.model_dump(mode="json"))
    except BeamsearchError as error:
        return Answer(number=number, error=str(error), error_kind=kind_of_error(error))
    except torch.AcceleratorError:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    except Exception:  # noqa: BLE001 - a fault of the program, raised where the job came from
        return Answer(number=number, error=traceback.format_exc())


def _beat(line: Line) -> None:
    pause = threading.Event()
    while not pause.wait(BEAT_S):
        line.say(Answer())


def _end_soon() -> None:
    """End this process before long, whatever still goes on in it."""
    timer = threading.Timer(END_S, lambda: os._exit(1))
    timer.daemon = True
    timer.start()


def main() -> None:
    """Serve on the standard streams."""
    requests = os.fdopen(os.dup(0), "r", encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(2, 1)
    serve(requests, answers)
    os._exit(0)  # threads that a job was given up in do not hold it


if __name__ == "__main__":
    main()
