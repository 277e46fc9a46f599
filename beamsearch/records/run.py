"""A whole run in one file."""

from datetime import datetime
from typing import Literal

from beamsearch.records.audit import Fault
from beamsearch.records.baselines import Baselines
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import Record
from beamsearch.records.tuning import TuningTotals
from beamsearch.records.usage import LaneUse
from beamsearch.settings import Settings
from kernel_profiling.profile import Floor


class Node(Record):
    """A machine of a cluster, as it says of itself. `None` where there is none."""

    address: str = ""
    id: str = ""
    """Ray's; several nodes may share an address."""
    lanes: int = 0
    """GPUs that it offers; without any, lanes that its cores are for."""
    gpu: str | None = None
    driver: str | None = None
    cuda: str | None = None
    torch: str = ""
    triton: str = ""
    ncu: str | None = None
    python: str = ""
    beamsearch: str = ""
    lacks: list[str] = []
    """What it has not, in words, where that was looked at."""
    left_out: str = ""
    """Why nothing is done there; empty where it may be."""


class Environment(Record):
    """The machine and the versions. `None` where there is none."""

    gpu: str | None
    gpu_uuid: str | None
    gpus: list[str] = []
    """UUIDs of all that the run was on: several at once, or one after another as it was resumed."""
    nodes: list[Node] = []
    """Of a cluster, all that the run met, also those that it did not use."""
    driver: str | None
    cuda: str | None
    torch: str
    triton: str
    ncu: str | None
    python: str
    beamsearch: str
    target: str
    """The GPU the times are for: the device, or the target compiled for."""


class RoundSummary(Record):
    """A round in one line."""

    round: int
    best: str
    """The running best after the round."""
    best_time: Measurement | None
    """Of a confirmed win, the time of its confirmation, in turns with the best before it."""
    speedup: float
    """The input kernel's time over the running best's."""
    correct: int
    candidates: int


class ReviewScore(Record):
    """What reviews said of candidates before they were judged, against the judge's verdicts."""

    judged: int
    """Candidates that were reviewed and judged; the next four count among these."""
    flags: int
    """Expected to fail."""
    right: int
    """Of the flags, those that failed."""
    failures: int
    missed: int
    """Of the failures, those not flagged."""
    set_aside: int
    """Flagged, believed, and not judged."""


class Totals(Record):
    """What the run did."""

    candidates: int = 0
    correct: int = 0
    wins: int = 0
    model_calls: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    seconds: float = 0.0
    review: ReviewScore | None = None
    """None where nothing was reviewed."""
    tuning: TuningTotals | None = None
    """None where nothing was tuned."""
    lane: LaneUse | None = None
    """Where the time went, of every process that worked on the run."""


WINNER = "winner"
"""How the last timing of a run calls its best kernel."""


class Confirmation(Record):
    """The winner beside the baselines, in one visit, interleaved."""

    name: str
    """The winning candidate."""
    winner: Measurement
    input: Measurement
    baselines: Baselines
    turns: dict[str, list[float]] = {}
    """Median of each turn in milliseconds by subject, as in `Comparison`."""


class RunRecord(Record):
    """`run.json`."""

    format: Literal[1] = 1
    problem: str
    scaled: str = ""
    """Where the problem is smaller than its file says: the factor, and which sizes."""
    problem_dtype: str
    began: datetime | None = None
    """When its record was first made, in UTC; None in runs of earlier versions."""
    saved: datetime | None = None
    """When a process that did something last saved it, in UTC; likewise."""
    settings: Settings
    environment: Environment
    who_thinks: str
    status: Literal["running", "waiting", "stopped", "finished"]
    """`waiting`: for answers to a batch, a GPU elsewhere, or a larger limit."""
    stop_reason: str | None = None
    floor: Floor | None = None
    baselines: Baselines
    flaws: list[Fault] = []
    """Why a win on this problem may mean little, as an audit found before the run."""
    rounds: list[RoundSummary] = []
    best: str | None = None
    confirmation: Confirmation | None = None
    totals: Totals = Totals()
    notes: list[str] = []
    """What could not be measured or verified here, in plain words."""
