"""A Python process of its own that answers with one record."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from contextlib import nullcontext
from typing import Any

from pydantic import ValidationError

from beamsearch.errors import BeamsearchError
from beamsearch.gpu.lane import Lane
from beamsearch.gpu.usage import Usage
from beamsearch.judge.sandbox.clean_environment import scrubbed_environment
from beamsearch.records.record import R
from kernel_profiling.errors import one_line


def answer_of(
    command: list[str],
    kind: type[R],
    timeout_s: float,
    gpu_uuid: str | None,
    *,
    usage: Usage | None = None,
    question: str = "",
    environment: Mapping[str, str] | None = None,
) -> R:
    """What `python -m command` prints as JSON in its last line, alone on the GPU if there is one.

    So this process never holds the GPU. The other one may import what it needs before it reads its
    standard input, which is the `question` and comes once the GPU is its own. Raises
    BeamsearchError where it takes too long or gives no such answer.
    """
    lane = nullcontext() if gpu_uuid is None else Lane(gpu_uuid, usage=usage).held()
    environment = scrubbed_environment() | dict(environment or {})
    pipes: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    command = [sys.executable, "-m", *command]
    with subprocess.Popen(command, env=environment, text=True, **pipes) as process:
        try:
            with lane:
                out, complaint = process.communicate(question, timeout_s)
        except subprocess.TimeoutExpired as error:
            raise BeamsearchError(f"it took over {timeout_s:.0f} s") from error
        finally:
            process.kill()
    try:
        return kind.model_validate_json(out.strip().rpartition("\n")[2])
    except ValidationError as error:
        last = complaint.strip().rpartition("\n")[2] or "no message"
        status = process.returncode
        raise BeamsearchError(f"its process ended ({status}): {one_line(last)}") from error
