"""A lane as a process: `python -m beamsearch.executor.lane_process`, a GPU of its own.

The first line of its standard input says what it is to be (`LaneSpec`), and may come late or never;
every other line asks something (`Request`). It answers on what was its standard output; what else
is printed goes to its log. It ends, with all that it started, when its input ends.
"""

from __future__ import annotations

import os
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, TYPE_CHECKING

from beamsearch.errors import BeamsearchError
from beamsearch.executor.client import LOG, LaneSpec
from beamsearch.executor.lane_server import AT_ONCE, LaneServer
from beamsearch.executor.messages import Answer, Request, kind_of_error

if TYPE_CHECKING:
    from beamsearch.gpu.usage import Usage

BEAT_S = 1.0
"""How often it says that it is there."""
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


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer requests until there are no more."""
    from beamsearch.gpu.usage import Usage

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which closes this
    import beamsearch.executor.local  # takes seconds, for which nobody waits yet

    if os.environ["CUDA_VISIBLE_DEVICES"]:
        import beamsearch.judge.on_gpu  # noqa: F401
    told = requests.readline()
    if not told:
        return  # not wanted
    spec = LaneSpec.model_validate_json(told)
    log = os.open(Path(spec.scratch) / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    usage = Usage()
    line = Line(answers, usage)
    threading.Thread(target=_beat, args=(line,), daemon=True).start()
    try:
        lane = LaneServer(spec, usage)
    except BeamsearchError as error:
        line.say(Answer(error=str(error), error_kind=kind_of_error(error)))
        return
    line.say(Answer(facts=lane.facts))
    pool = ThreadPoolExecutor(AT_ONCE)
    for text in requests:
        request = Request.model_validate_json(text)
        if request.op == "prepare":
            lane.answer(request)
        else:
            lane.begins(request)
            pool.submit(_answer, lane, line, request)
    _end_soon()
    pool.shutdown(wait=False, cancel_futures=True)
    lane.close()


def _answer(lane: LaneServer, line: Line, request: Request) -> None:
    line.say(lane.answer(request))


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
