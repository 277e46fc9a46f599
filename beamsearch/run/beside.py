"""Work that goes on beside other work of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from beamsearch.run.stop import StopToken

T = TypeVar("T")

WAIT_S = 0.1
"""How often it is seen whether the run is to stop: tuning torch.compile takes minutes."""


class Beside(Generic[T]):
    """Begun at once, in a thread of its own; what it came to is there when it is asked for. A run
    that ends earlier does not wait for it."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._work = work
        self._result: T
        self._raised: BaseException | None = None
        self._thread = threading.Thread(target=self._do, daemon=True)
        self._thread.start()

    def result(self, stop: StopToken) -> T:
        """Wait for it. Raises what it raised, and Stopped."""
        while self._thread.is_alive():
            self._thread.join(WAIT_S)
            stop.check()
        if self._raised is not None:
            raise self._raised
        return self._result

    def _do(self) -> None:
        try:
            self._result = self._work()
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            self._raised = error
