"""What an executor is asked and what it answers: records both ways, so a GPU may be elsewhere."""

from typing import Generic, Literal

from beamsearch.records.captured import Compilation
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import R, Record
from beamsearch.records.verdict import Verdict
from kernel_profiling.profile import Floor, Profile

Baseline = Literal["eager", "compile", "max_autotune"]
OwnPythonOf = Literal["all", "fastest", "none"]


class Job(Record, Generic[R]):
    """What an executor is asked, and the kind of record that it answers with."""

    round: int = 0
    """The round that waits for it: what an earlier one waits for is done first."""


class Subject(Record):
    """Something that can be called on the problem's inputs."""

    name: str
    kind: Literal["kernel"] | Baseline = "kernel"
    """`kernel`: a source file; the others are the reference, as PyTorch runs it."""
    source: str | None = None
    """Source of a kernel; None for the reference."""


class Judgement(Record):
    """The verdict, and the time where the verdict is correct (modelled where there is no GPU)."""

    verdict: Verdict
    measurement: Measurement | None = None


class JudgeJob(Job[Judgement]):
    """Decide whether a kernel computes the problem and, where it does, how long it takes."""

    subject: Subject
    seen: dict[str, str] = {}
    """Fingerprint of compiled code -> the candidate that had it: one of these is not judged."""
    thorough: bool = False
    """Also every shape and layout that is only reported: for one kernel, not for hundreds."""
    sanitize: bool = False
    """Also under compute-sanitizer, where there is a GPU and it is installed: half a minute."""


class KernelTime(Record):
    """A GPU kernel that a call of the reference ran, and for how long by the driver's trace."""

    name: str
    count: int
    """Launches of it in the call."""
    ms: float
    """All of them together."""


class Comparison(Record):
    """Measurements by subject name; a subject that could not be timed has a reason instead."""

    measurements: dict[str, Measurement]
    failed: dict[str, str] = {}
    turns: dict[str, list[float]] = {}
    """Median of each turn by subject, in milliseconds: turns of one number were taken together."""
    kernels: dict[str, list[KernelTime]] = {}
    """Baseline -> the GPU kernels of one call, the longest first, where that was asked for."""


class CompareJob(Job[Comparison]):
    """Time several subjects interleaved in one visit. Needs a GPU."""

    subjects: list[Subject]
    kernels: bool = False
    """Also which GPU kernels the baselines run: what one is slow by."""
    own_python: OwnPythonOf = "all"
    """Which kernels' own Python is called too, to be right and to have its time told: one that is
    wrong there has no time. `fastest`: down to the first that is right, which alone may win."""


class ProfileJob(Job[Profile]):
    """Profile one bound call of a kernel that is known to be correct."""

    subject: Subject
    full: bool = False
    """With all that Nsight Compute can collect, and its own rules, which takes three times as
    long; no finding needs it."""


class CompileJob(Job[Compilation]):
    """Have `torch.compile` write code for the reference. Needs a GPU."""

    way: str
    """One of `inductor.capture.WAYS`."""


class Sweep(Record):
    """Milliseconds by subject name, one a rung: slow forms left early. Modelled without a GPU."""

    times_ms: dict[str, list[float]]
    failed: dict[str, str] = {}
    """Subject without a time -> why."""
    modelled: bool = False


class FloorJob(Job[Floor]):
    """Work out the problem's floor, with the rates that are measured on this GPU."""

    known: Floor | None = None
    """The floor so far, to be held against `time`; worked out anew where there is none."""
    time: Measurement | None = None
    """Of a right kernel, or of the reference, which no floor is above."""


class SweepJob(Job[Sweep]):
    """Time forms of one correct kernel that differ in constants. The first is the kernel as it is;
    what is fast here is judged afterwards like any other kernel."""

    subjects: list[Subject]
