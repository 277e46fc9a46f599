"""A round whose workers are at work, beside which the next one may be."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from beamsearch.run.person import PersonsKernels
from beamsearch.run.worker import Worker
from beamsearch.search.directions import Plan

STOP_GRACE_S = 10.0
"""How long a stop waits for what is under way before it is abandoned, to be done again."""
STEP_S = 0.05


class InFlight:
    """A begun round. Its workers run in threads from the moment it is made."""

    def __init__(self, plan: Plan, jobs: Sequence[Worker | PersonsKernels]) -> None:
        self.plan = plan
        self.workers = [job for job in jobs if isinstance(job, Worker)]
        self.errors: list[tuple[Worker | PersonsKernels, BaseException]] = []
        """What ended those that did not come to their end."""
        self._jobs = list(jobs)
        self._threads = [threading.Thread(target=self._run, args=(j,), daemon=True) for j in jobs]
        for thread in self._threads:
            thread.start()

    def _run(self, job: Worker | PersonsKernels) -> None:
        try:
            job.run()
        except BaseException as error:  # noqa: BLE001 - carried to the main thread and raised
            self.errors.append((job, error))

    @property
    def is_working(self) -> bool:
        return any(thread.is_alive() for thread in self._threads)

    @property
    def is_judged(self) -> bool:
        """Whether every kernel of the round is, so that workers at most have to reflect."""
        return all(
            job.is_judged.is_set() if isinstance(job, Worker) else not thread.is_alive()
            for job, thread in zip(self._jobs, self._threads, strict=True)
        )

    def wait_a_moment(self) -> None:
        """Return soon, at once where all workers have ended."""
        deadline = time.monotonic() + STEP_S
        for thread in self._threads:
            thread.join(timeout=max(0.0, deadline - time.monotonic()))
