"""Compilation ahead of the GPU: on CPU cores, while somebody else has the lane."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from beamsearch.errors import Stopped
from beamsearch.executor.usage import Usage
from beamsearch.judge.processes import CandidateError, DeadlineMissed, ForkServers, ProcessDied
from beamsearch.judge.verify import COMPILE_S, Log, Rejected, compile_call, load
from beamsearch.records.verdict import Outcome, Stage
from profiling.profile import Profile

if TYPE_CHECKING:
    from profiling.gpus import Gpu


@dataclass(frozen=True)
class Compiled:
    """What came of one compilation at the true shapes."""

    log: Log = field(default_factory=Log)
    profile: Profile | None = None
    """None where it does not compile on `meta` tensors, which it may still do on the GPU."""
    rejection: Rejected | None = None
    """Of a source that cannot even be imported, or never ends."""

    def tell(self, log: Log) -> None:
        """Add what was seen to a verdict's log. Raises the rejection."""
        log.checks += self.log.checks
        log.not_checked += self.log.not_checked
        log.output += self.log.output
        log.code_fingerprint = self.log.code_fingerprint
        log.launched = self.log.launched
        if self.rejection is not None:
            raise self.rejection


class Compilers:
    """Compiles each source once, on most cores; the GPU finds the code in its cache. A core in four
    stays free: launches that are timed must not wait for one."""

    def __init__(
        self, servers: ForkServers, gpu: Gpu, arguments: Sequence[dict[str, Any]], usage: Usage
    ) -> None:
        """`arguments` of the call at the true shapes, then at others that are compiled for the
        cache alone."""
        self._servers = servers
        self._gpu = gpu.model_dump(mode="json")
        self._arguments = arguments
        self._usage = usage
        self._lock = threading.Lock()
        self._begun: dict[tuple[str, str], Future[Compiled]] = {}
        self._pool = ThreadPoolExecutor(max(1, (os.cpu_count() or 2) * 3 // 4))

    def begin(self, path: str, key: str, *, everywhere: bool = True) -> Future[Compiled]:
        """Start on a source file, or find it begun. `key`: whose compile cache it goes to. Unless
        `everywhere`, at the true shapes alone."""
        with self._lock:
            if (path, key) not in self._begun:
                try:
                    future = self._pool.submit(self._compile, path, key, everywhere)
                except RuntimeError as error:
                    raise Stopped("the executor is closed") from error
                self._begun[path, key] = future
            return self._begun[path, key]

    def result(self, path: str, key: str) -> Compiled:
        """What came of it. What a lost server raises is raised, and the next caller tries again."""
        future = self.begin(path, key)
        try:
            return future.result()
        except BaseException:
            with self._lock:
                if self._begun.get((path, key)) is future:
                    del self._begun[path, key]
            raise

    def _compile(self, path: str, key: str, everywhere: bool) -> Compiled:
        """What fails here on `meta` tensors alone may still run, so only the GPU's word counts."""
        log, profile, rejected = Log(), None, None
        with (
            self._usage.waiting("compilation"),
            self._servers.fork("normal", key=key, limit_memory=False) as process,
        ):
            try:
                load(process, path)
                log.passed(Stage.LOAD, "import")
                profile = compile_call(process, self._arguments[0], self._gpu, log)
                for others in self._arguments[1:] if everywhere else ():
                    with suppress(CandidateError, ProcessDied, DeadlineMissed):
                        process.ask("compile", COMPILE_S, arguments=others, gpu=self._gpu)
            except Rejected as rejection:
                if rejection.stage is Stage.LOAD or rejection.outcome is Outcome.TIMEOUT:
                    rejected = rejection
                else:
                    log.not_checked.append(f"compilation without a GPU: {rejection.reason}")
            finally:
                process.end()
                log.output.append(process.output)
        return Compiled(log, profile, rejected)

    def close(self) -> None:
        """Begin nothing more; what is under way ends with its fork server."""
        self._pool.shutdown(wait=False, cancel_futures=True)
