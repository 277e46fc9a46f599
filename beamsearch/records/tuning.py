"""A sweep over launch parameters and block sizes, without any model."""

from beamsearch.records.record import Record


class Form(Record):
    """A kernel with one setting changed."""

    setting: str
    """What is different, such as `BLOCK 2048, num_warps 8`; `as it is` for the first."""
    fingerprint: str
    times_ms: list[float] = []
    """Medians, one a rung: a slow form left early."""
    reason: str = ""
    """Why it has no time."""


class Tuning(Record):
    """`tuning.json` of a worker: the forms of one kernel, timed against each other."""

    of: str
    """The candidate that was tuned."""
    modelled: bool
    """Whether these times come from the model."""
    forms: list[Form]
    """The kernel as it is, then the others."""
    seconds: float
    """From start to end, compilation and the wait for the lane included."""

    @property
    def timed(self) -> int:
        """Forms that have a time, the kernel as it is left out."""
        return sum(bool(form.times_ms) for form in self.forms[1:])


class TuningTotals(Record):
    """What tuning cost a run, and what it brought."""

    sweeps: int
    configurations: int
    """Forms that were timed, the kernels as they were left out."""
    judged: int
    """Of these, the fastest that were judged as candidates."""
    gains: int
    """Sweeps that ended with a correct kernel faster than the one tuned."""
    best_gain: float | None = None
    """The largest ratio of the two times; none where nothing was gained."""
    mean_gain: float | None = None
    """Geometric mean of the ratio over all sweeps, 1 for one that gained nothing."""
    seconds: float
    """In all, of which the lane's part stands in its account."""
