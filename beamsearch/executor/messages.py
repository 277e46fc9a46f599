"""What goes between a lane's process and who gives it jobs: one JSON object a line."""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import BaseModel

from beamsearch import errors
from beamsearch.errors import BeamsearchError
from beamsearch.executor.client import LaneFacts
from beamsearch.records.captured import Compilation
from beamsearch.records.job import (
    CompareJob,
    Comparison,
    CompileJob,
    FloorJob,
    Job,
    JudgeJob,
    Judgement,
    ProfileJob,
    Subject,
    Sweep,
    SweepJob,
)
from beamsearch.records.record import Record
from beamsearch.records.usage import LaneUse
from kernel_profiling.profile import Floor, Profile

ANSWERS: dict[type[Job[Any]], type[BaseModel]] = {
    JudgeJob: Judgement,
    CompareJob: Comparison,
    ProfileJob: Profile,
    CompileJob: Compilation,
    SweepJob: Sweep,
    FloorJob: Floor,
}
"""Kind of job -> kind of the record that answers it."""
_KINDS = {kind.__name__: kind for kind in ANSWERS}


class Request(Record):
    """What a lane is asked."""

    number: int
    """Which request its answer is of."""
    op: Literal["run", "prepare", "isolation"]
    kind: str = ""
    """Of the job."""
    job: dict[str, Any] = {}
    subjects: list[Subject] = []

    @classmethod
    def of(cls, number: int, job: Job[Any]) -> Request:
        """The request for a job."""
        body = job.model_dump(mode="json")
        return cls(number=number, op="run", kind=type(job).__name__, job=body)

    def its_job(self) -> Job[Any]:
        """The job that is asked for."""
        return _KINDS[self.kind].model_validate_json(json.dumps(self.job))


class Answer(Record):
    """What a lane says: an answer, or by itself that it is there."""

    number: int | None = None
    """Which request it answers; none where it is no answer."""
    record: Any = None
    error: str | None = None
    error_kind: str = ""
    """Class of `beamsearch.errors`; empty for a fault of the program."""
    facts: LaneFacts | None = None
    """In the first answer, where the lane began."""
    use: LaneUse = LaneUse()

    def raised(self) -> Exception:
        """The error, as the lane raised it."""
        kind = getattr(errors, self.error_kind, None)
        if isinstance(kind, type) and issubclass(kind, BeamsearchError):
            return kind(self.error)
        if self.error_kind:
            return BeamsearchError(self.error)
        return RuntimeError(f"in a lane's process: {self.error}")


def kind_of_error(error: BeamsearchError) -> str:
    """Name of its class, or of the nearest one above it that everybody knows."""
    known = (kind for kind in type(error).__mro__ if getattr(errors, kind.__name__, None) is kind)
    return str(next(known).__name__)
