"""What a round leaves: who won, every candidate, and the beam after it."""

from beamsearch.records.candidate import Candidate
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import Record
from beamsearch.records.tuning import Tuning


class RoundRecord(Record):
    """`round_N/round.json`."""

    round: int
    candidates: list[Candidate]
    """Every candidate of the round: a person's kernels, then by worker and variant."""
    best_worker: int | None = None
    """The worker whose files stand in the round's folder; none in round 0, and where the round's
    best is a person's kernel, whose files stand there then."""
    best: str | None = None
    """The fastest correct candidate of the round."""
    win: bool = False
    """Whether the round's best is confirmed faster than everything before it."""
    beam: list[str]
    """Names of the kernels kept after the round, fastest first."""
    running_best: str
    """The best kernel so far, a later one only by a confirmed win."""
    absent: dict[str, str] = {}
    """File that does not apply -> why."""
    tunings: list[Tuning] = []
    """The sweeps after this round's wins over their parents."""
    plans_apart: float | None = None
    """How different the workers' plans are, where a model thinks: the mean over every two, 0 for
    the same words, 1 for none in common (`search.difference`)."""
    kernels_apart: float | None = None
    """The same of the kernels written for them, by their lines; without repairs and tuned forms."""
    seconds: float | None = None
    """What the run had taken at the end of the round, in every process; none in runs recorded
    before this was kept."""


def tuning_gain(tuning: Tuning, record: RoundRecord) -> float:
    """The time of the kernel that was tuned over that of its best judged form; 1 where none of them
    is faster, or none was timed in the same visit."""
    before = next(c.measurement for c in record.candidates if c.name == tuning.of)
    after = [c.measurement for c in record.candidates if c.tuned_from == tuning.of]
    assert before is not None
    times = [time.time_ms for time in after if time is not None and time.visit == before.visit]
    return max(1.0, before.time_ms / min(times, default=before.time_ms))


class Result(Record):
    """One candidate in `benchmark_results.json`."""

    name: str
    outcome: str
    measurement: Measurement | None
    speedup_over_parent: float | None


class BenchmarkResults(Record):
    """`benchmark_results.json`: a worker's results; in a round's folder also the running best."""

    round: int
    worker: int | None
    parent: str | None
    parent_time: Measurement | None
    results: list[Result]
    running_best: str | None = None
    running_best_time: Measurement | None = None
    speedup_over_input: float | None = None
    multiple_of_floor: float | None = None
