"""The executor of a machine that lacks the run's GPU."""

from __future__ import annotations

from typing import Any

from beamsearch.errors import Waiting
from beamsearch.gpu.usage import Usage


class RemoteExecutor:
    """Stands for a GPU on another machine: recorded results serve, and a new job waits for it."""

    measures = True

    def __init__(self, gpu: str) -> None:
        self.gpu = gpu
        self.usage = Usage()

    def run(self, job: Any) -> Any:
        """Begin no job: raises Waiting."""
        raise Waiting(
            f"waits for a GPU step, and this machine has no {self.gpu}: move the run's folder to "
            "one that has"
        )

    def prepare(self, subjects: Any) -> None:
        """Begin nothing: kernels are not judged here."""

    def anchor(self, *_: Any) -> None:
        """Time nothing: there is no visit."""

    def missing_isolation(self) -> dict[str, str]:
        """None: no candidate runs here."""
        return {}

    def close(self) -> None:
        """End nothing: no process was started."""
