"""What calls a candidate: its process in the interpreter, or the runner with its plan."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Protocol

from beamsearch.judge.rejection import LOAD_S, guarded
from beamsearch.records.verdict import Stage


class Callee(Protocol):
    """What calls a candidate: its process in the interpreter, or the runner with its plan."""

    touched: Collection[int]
    """Storages of inputs and parameters that its plan reads or writes."""

    def ask(self, op: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        """One request. Raises ToldError, ProcessDied or DeadlineMissed."""
        ...


def load(process: Callee, source_file: str, gpu: Mapping[str, Any]) -> None:
    """Import the kernel in its process, for this GPU."""
    guarded(Stage.LOAD, "import", lambda: process.ask("load", LOAD_S, source=source_file, gpu=gpu))
