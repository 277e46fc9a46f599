"""A lane where it works: an executor that answers requests, several at once."""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.errors import BeamsearchError
from beamsearch.executor.client import LaneFacts, LaneSpec
from beamsearch.executor.messages import Answer, Request, kind_of_error

if TYPE_CHECKING:
    from beamsearch.executor.local import LocalExecutor
    from beamsearch.gpu.usage import Usage
    from beamsearch.judge.capture.ahead import Apart
    from kernel_profiling.gpus import Gpu

AT_ONCE = 64
"""Jobs at once; those above wait. A run gives a lane about as many as it has workers."""


class LaneServer:
    """A lane's executor, and the account of its time. Thread-safe."""

    def __init__(
        self, spec: LaneSpec, usage: Usage, apart: Callable[[Gpu], Apart] | None = None
    ) -> None:
        """Begins it. `apart`: what captures kernels for its GPU on other machines. Raises
        BeamsearchError."""
        self._executor = _open(spec, usage, apart)
        self._idle = _Idle(usage)
        self.facts = LaneFacts(gpu=self._executor.gpu, visit=self._executor.visit)

    def begins(self, request: Request) -> None:
        """A request is there, which `answer` will be called with."""
        if request.op != "prepare":
            self._idle.begins()

    def answer(self, request: Request) -> Answer:
        """The answer to a request. A GPU that failed takes the process with it: what it holds of
        CUDA is lost."""
        if request.op == "prepare":
            self._executor.prepare(request.subjects)
            return Answer()
        try:
            return self._done(request)
        finally:
            self._idle.ended()

    def _done(self, request: Request) -> Answer:
        import torch

        number = request.number
        try:
            if request.op == "isolation":
                return Answer(number=number, record=self._executor.missing_isolation())
            record: Any = self._executor.run(request.its_job())
            return Answer(number=number, record=record.model_dump(mode="json"))
        except BeamsearchError as error:
            return Answer(number=number, error=str(error), error_kind=kind_of_error(error))
        except torch.AcceleratorError:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        except Exception:  # noqa: BLE001 - a fault of the program, raised where the job came from
            return Answer(number=number, error=traceback.format_exc())

    def close(self) -> None:
        """End every process that the executor started."""
        self._executor.close()


def _open(spec: LaneSpec, usage: Usage, apart: Callable[[Gpu], Apart] | None) -> LocalExecutor:
    """The executor of a lane; its GPU is the only one that this process sees."""
    from beamsearch.executor.local import LocalExecutor
    from beamsearch.gpu.machine import find_machine, modelled
    from beamsearch.judge.once import OncePerMachine

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
        hidden=spec.hidden,
        apart=apart(machine.gpu) if apart else None,
        once=OncePerMachine(Path(spec.shared)) if spec.shared else None,
    )


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
