"""Audits of many problems, each in a process of its own: a file that hangs or dies takes no other
one with it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from beamsearch.baselines.cache import digest_of, read_cached, write_cached
from beamsearch.errors import ProblemError
from beamsearch.paths import cache_folder
from beamsearch.problem.problem import name_of, source_of_problem
from beamsearch.records.audit import Audit, Fault
from beamsearch.suite.processes import end, end_with_parent, forking, join, start
from kernel_profiling.errors import one_line
from kernel_profiling.gpus import Gpu

TIMEOUT_S = 120.0
"""The largest networks of KernelBench take half a minute on one core."""
AUDIT_S = 20.0
"""Seconds that a run waits to hear whether its problem is flawed: a usual one takes three."""


def audits(
    paths: Sequence[Path],
    gpu: Gpu,
    jobs: int = 1,
    *,
    timeout_s: float = TIMEOUT_S,
    quick: bool = False,
    scale: float | None = None,
) -> Iterator[Audit]:
    """The audit of every file, in the order in which they end; `jobs` at once, each of which may
    take `timeout_s`. `quick` and `scale` as in `audit`."""
    context = forking("beamsearch.suite.audit")
    waiting = list(reversed(paths))
    running: dict[Connection, tuple[Any, Path, float]] = {}
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                path = waiting.pop()
                ours, theirs = context.Pipe(duplex=False)
                process = context.Process(
                    target=_answer, args=(theirs, path, gpu, quick, scale), daemon=True
                )
                start(process)
                theirs.close()
                running[ours] = process, path, time.monotonic()
            ended = wait(list(running), timeout=0.5)
            for link, (process, path, begun) in list(running.items()):
                seconds = time.monotonic() - begun
                if link not in ended and seconds < timeout_s:
                    continue
                del running[link]
                yield _result(link, process, path) if link in ended else _late(path, timeout_s)
                end(process)
                link.close()
    finally:
        for process, _, _ in running.values():
            process.kill()


def flaws_of(problem: Path, gpu: Gpu, scale: float | None = None) -> list[Fault]:
    """What a quick audit finds; nothing where it takes too long, or the problem cannot be read or
    run, which the run says by itself.

    What it found is kept, and found again where neither the file nor what audits it changed; of
    what a file imports only the file's own text counts.
    """
    try:
        source = source_of_problem(problem)
    except ProblemError:
        return []
    own = (path.read_text() for path in sorted(Path(__file__).parent.glob("*.py")))
    facts = source, gpu.key, scale, version("torch"), *own
    path = cache_folder() / "audits" / f"{digest_of(*facts)}.json"
    kept = read_cached(path, Audit)
    if kept is None:
        (kept,) = audits([problem], gpu, timeout_s=AUDIT_S, quick=True, scale=scale)
        if not kept.failed:
            write_cached(path, kept)
    return kept.faults


def _answer(link: Connection, path: Path, gpu: Gpu, quick: bool, scale: float | None) -> None:
    import warnings

    import torch

    from beamsearch.suite.audit import audit

    end_with_parent()
    warnings.simplefilter("ignore")  # what a file's own code warns of is its author's
    torch.set_num_threads(1)
    try:
        found = audit(path, gpu, quick=quick, scale=scale)
    except Exception as error:  # noqa: BLE001 - a file may raise anything; its line says so
        found = _failed(path, f"{type(error).__name__}: {one_line(str(error))}", 0.0)
    with suppress(BrokenPipeError):  # who asked was stopped meanwhile
        link.send(found)


def _result(link: Connection, process: Any, path: Path) -> Audit:
    try:
        found = link.recv()
        assert isinstance(found, Audit)
        return found
    except EOFError:
        join(process)
        return _failed(path, f"its process ended with exit code {process.exitcode}", 0.0)


def _late(path: Path, seconds: float) -> Audit:
    return _failed(path, f"it took over {seconds:.0f} s", seconds)


def _failed(path: Path, reason: str, seconds: float) -> Audit:
    return Audit(name=name_of(path), path=str(path), failed=reason, seconds=round(seconds, 2))
