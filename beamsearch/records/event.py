"""What a run tells while it goes on, as `--json-lines` prints it: one event a line.

A modelled time says so in its `source`; so does `modelled` of what is computed from times.
"""

from typing import Annotated, Literal

from pydantic import Field, TypeAdapter, ValidationError

from beamsearch.errors import UsageError
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import Record
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import RunRecord, Totals


class Told(Record):
    """What every event has."""

    at: float
    """Unix time, in seconds."""


class RunStarted(Told):
    """The first event: the run is set up, or goes on."""

    event: Literal["run_started"] = "run_started"
    folder: str
    run: RunRecord
    """As `run.json` is now; its `rounds` are those of before."""

    def __str__(self) -> str:
        return f"{self.run.problem} in {self.folder}, {self.run.who_thinks} thinks"


class Dealt(Record):
    """What one worker of a round goes after."""

    worker: int
    parent: str
    direction: Direction


class RoundStarted(Told):
    """A round begins; of round 0, in which the first kernel is judged, only the end is told."""

    event: Literal["round_started"] = "round_started"
    round: int
    dealt: list[Dealt]

    def __str__(self) -> str:
        return f"round {self.round}: {'; '.join(f'{d.parent}: {d.direction}' for d in self.dealt)}"


class WorkerTurned(Told):
    """A worker does something else. Before and after the rounds, worker 0 stands for the run."""

    event: Literal["worker"] = "worker"
    round: int | None = None
    worker: int
    doing: str

    def __str__(self) -> str:
        return f"worker {self.worker}: {self.doing}"


class Judged(Told):
    """A candidate has its verdict; told again of one that an earlier process judged in a round that
    goes on."""

    event: Literal["candidate"] = "candidate"
    candidate: Candidate

    def __str__(self) -> str:
        own = self.candidate
        time = f", {own.measurement}" if own.measurement else ""
        why = f": {own.verdict.reason}" if own.verdict.reason else ""
        return f"{own.name} is {own.verdict.outcome}{time}{why}"


class RoundEnded(Told):
    """A round is on disk; the first one told is where a run that goes on stands."""

    event: Literal["round_ended"] = "round_ended"
    round: RoundRecord
    best: str | None
    best_time: Measurement | None
    over: dict[str, float]
    """The best's speedup over `input`, `eager`, `compile` and `max_autotune`, as far as known."""
    of_floor: float | None
    """The best's time as a multiple of the floor."""
    modelled: bool
    """Whether `best_time`, `over` and `of_floor` are modelled."""
    totals: Totals
    left_s: float | None
    """Seconds to the end at the pace of the rounds so far, at most to the time limit."""

    def __str__(self) -> str:
        return f"round {self.round.round} ended, the best is {self.round.running_best}"


class Noted(Told):
    """Something a person should know."""

    event: Literal["note"] = "note"
    text: str

    def __str__(self) -> str:
        return self.text


class Stopping(Told):
    """Somebody asked the run to stop, which it does after the step under way."""

    event: Literal["stopping"] = "stopping"


class RunStopped(Told):
    """The last event of a run that can go on: it was stopped, waits, or met an error."""

    event: Literal["run_stopped"] = "run_stopped"
    reason: str
    run: RunRecord


class RunEnded(Told):
    """The last event of a run that is finished."""

    event: Literal["run_ended"] = "run_ended"
    folder: str
    run: RunRecord

    def __str__(self) -> str:
        return f"{self.run.status}: {self.run.stop_reason}"


Event = Annotated[
    RunStarted
    | RoundStarted
    | WorkerTurned
    | Judged
    | RoundEnded
    | Noted
    | Stopping
    | RunStopped
    | RunEnded,
    Field(discriminator="event"),
]
_EVENT: TypeAdapter[Event] = TypeAdapter(Event)


def read_event(line: str) -> Event:
    """An event from its line. Raises UsageError where it is none."""
    try:
        return _EVENT.validate_json(line)
    except ValidationError as error:
        raise UsageError(f"this line is no event of a run: {error}") from error
