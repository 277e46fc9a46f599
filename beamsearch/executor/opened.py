"""A lane for verbs that judge or profile one kernel: made for the verb, gone after it."""

from __future__ import annotations

import secrets
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from beamsearch.executor.executor import Executor
    from beamsearch.gpu.machine import Machine
    from beamsearch.problem.problem import Problem


@contextmanager
def lane(
    problem: Problem,
    machine: Machine,
    seed: int | None = None,
    *,
    strict_nan: bool = False,
) -> Iterator[tuple[Executor, Path]]:
    """An executor for this machine, and its scratch folder. Inputs are drawn from
    the seed, or from a secret one."""
    from beamsearch.executor.local import LocalExecutor
    from beamsearch.judge.sandbox.clean_environment import remove

    with tempfile.TemporaryDirectory(prefix="beamsearch-") as scratch:
        # Candidates are other users, who may pass through and not look around.
        Path(scratch).chmod(0o711)
        executor = LocalExecutor(
            problem,
            machine=machine,
            scratch=Path(scratch),
            seed=secrets.randbits(128) if seed is None else seed,
            strict_nan=strict_nan,
        )
        try:
            yield executor, Path(scratch)
        finally:
            executor.close()
            remove(Path(scratch))
