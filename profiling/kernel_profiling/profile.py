"""What is known of one call of a kernel, from Nsight Compute or from the compiler alone."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field


class Record(BaseModel):
    """Base of everything this package writes down: strict, immutable, JSON both ways."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def with_values(self, **values: object) -> Self:
        """Another record with these values in place of its own, validated like any other."""
        return type(self).model_validate(dict(self) | values)


class LineCounters(Record):
    """Counters of one line of the kernel's source. `None` is missing, never zero."""

    line: int
    text: str
    stall_share: float | None = None
    """Share (0..1) of the launch's stall samples on this line."""
    stall_reasons: dict[str, float] = {}
    """Stall reason -> share (0..1) of this line's samples."""
    instructions: int | None = None
    """Executed warp instructions (ncu) or static SASS instructions (compiler)."""
    instruction_share: float | None = None
    sectors_per_request: float | None = None
    """Global memory sectors (32 bytes) per warp request."""
    ideal_sectors_per_request: float | None = None
    bank_conflicts: float | None = None
    load_bits: int | None = None
    """Widest global load a thread issues on this line, in bits."""
    store_bits: int | None = None
    spill_instructions: int | None = None
    index_instructions: int | None = None
    """Of `instructions`, those that compute integers: addresses, indices, masks."""
    divisions: int | None = None
    """Places in the machine code that divide by an integer the compiler did not know."""
    load_lanes_on: float | None = None
    """Lanes, of 32, that this line's masked global loads really load for."""
    copies: int | None = None
    """Executed copies of blocks or parts of blocks, such as loads by tensor descriptors: one moves
    what no lane has a part of, and no sector is counted at it."""


class Rule(Record):
    """One result of Nsight Compute's own rules."""

    name: str
    message: str
    estimated_speedup_percent: float | None = None


AccessKind = Literal["load", "store", "atomic"]


class CodeAccess(Record):
    """Equal memory instructions of one source line in one region of the machine code."""

    line: int
    kind: AccessKind
    bits: int
    """What one thread moves with one of them."""
    count: int
    fastest: int = 0
    """Dimension of the block along which the lanes of a warp follow each other."""
    lane_elements: int | None = None
    """Neighbouring elements one lane owns along it; 0: all lanes the same; none: not known."""
    past_l1: bool = False
    """Whether it goes past the L1 to the L2 (`.cg`, volatile)."""
    bulk: bool = False
    """A copy of a block, or a part of one, that one thread starts: `bits` says nothing of it."""


class CodeRegion(Record):
    """Machine code that runs equally often: all outside loops, or a loop without its inner ones.

    Region 0 is the code outside loops; a loop names the region around it.
    """

    parent: int | None = None
    mix: dict[str, int]
    """Static instructions by class (see `kernel_profiling.compiler.sass`)."""
    lines: dict[int, int]
    """Static instructions by source line."""
    waits: int = 0
    """Times a run of it stops for loads: what is loaded between two stops is on its way at once."""
    accesses: list[CodeAccess] = []


class Launch(Record):
    """One kernel launch of the profiled call. `None` is missing, never zero."""

    name: str
    triton: bool
    """True for the candidate's own Triton kernel, False for a framework's or library's."""
    grid: tuple[int, int, int]
    threads: int
    """Threads a block."""
    duration_us: float | None = None
    """Measured by the profiler; a compiler's profile has none."""
    share: float | None = None
    """Share (0..1) of the call's time."""
    registers: int | None = None
    """Registers a thread."""
    spill_bytes: int | None = None
    """Local memory a thread spills, in bytes."""
    shared_bytes: int | None = None
    """Shared memory a block, in bytes."""
    occupancy: float | None = None
    """Theoretical occupancy, 0..1."""
    occupancy_limiter: str | None = None
    """registers, shared memory, warps or blocks."""
    num_stages: int | None = None
    load_bits: int | None = None
    """Widest global load in the whole kernel, in bits."""
    store_bits: int | None = None
    matrix_instructions: int | None = None
    """Static count of matrix (HMMA, HGMMA, …) instructions."""
    instruction_mix: dict[str, int] = {}
    """Static SASS instructions by class (global_load, global_store, shared, integer, float, …)."""
    metrics: dict[str, float] = {}
    """Curated metrics by the names of `ncu.metrics`; one that is absent is missing."""
    lines: list[LineCounters] = []
    inlined_stalls: dict[str, float] = {}
    """Reason -> share of all stalls, of what Triton's own reductions and scans wait for: code that
    is of no line of the kernel's file."""
    rules: list[Rule] = []
    regions: list[CodeRegion] = []
    """The machine code by loop; only in a compiler's profile."""
    lowering: list[str] = []
    """What the compiler made of products and loops, in words."""
    config: str | None = None
    """The autotuner's configuration that stands here; none where the kernel has no autotuner."""
    fingerprint: str | None = None
    """Hash of the machine code and launch shape, so that equal kernels are seen to be equal."""


class GivesAway(Record):
    """What a reference does whatever its inputs and weights are: work that nobody has to do.

    Shares are 0..1 of a tensor's elements.
    """

    zero_outputs: float = 0.0
    """Outputs that were zero in every draw."""
    constant_outputs: float = 0.0
    """Outputs that had the same value in every draw, zeros left out."""
    repeated: list[str] = []
    """Outputs that repeat along a dimension: `output 0 along dimension 2`."""
    unused: dict[str, float] = {}
    """Input or parameter -> share of its elements that no output depends on."""
    fixed: dict[str, float] = {}
    """Input or parameter -> share of its elements with the same value in every draw."""
    draws: int = 0
    """Draws of inputs and weights that this was seen in."""
    true_shapes: bool = True
    """False where it was seen at shrunk shapes, whose edges weigh more."""
    failed: str | None = None
    """Why the reference could not be examined, where it could not."""

    @property
    def sentence(self) -> str | None:
        """What a person should know of it; none where there is nothing to tell."""
        if self.failed is not None:
            return f"What the reference gives away is not known: {self.failed}."
        told = []
        if self.zero_outputs:
            told.append(f"{self.zero_outputs:.1%} of the outputs are zero")
        if self.constant_outputs:
            told.append(f"{self.constant_outputs:.1%} of the outputs are constant")
        told += [f"{place} repeats one value" for place in self.repeated]
        told += [f"no output depends on {part:.1%} of {name}" for name, part in self.unused.items()]
        told += [
            f"{name} holds the same values in every draw, as a table does"
            if part == 1
            else f"{part:.1%} of {name} holds the same values in every draw"
            for name, part in self.fixed.items()
        ]
        if not told:
            return None
        shapes = "" if self.true_shapes else " (seen at smaller shapes, where edges weigh more)"
        return f"Whatever the input, {'; '.join(told)}{shapes}."


class Configuration(Record):
    """One of an autotuner's configurations, and what the compiler made of it."""

    config: str
    registers: int | None = None
    """Registers a thread, of the launch that has most."""
    spill_bytes: int | None = None
    shared_bytes: int | None = None
    time_ms: float | None = None
    """What the whole call takes with it; none where it was not timed, or is wrong."""


class Costs(Record):
    """What a GPU was seen to take for what no datasheet tells."""

    l2_gb_s: float
    """Reading what is in the L2, 1e9 bytes a second."""
    barrier_us: float
    """A barrier of one program a multiprocessor, launched together, by atomics in device memory."""
    launch_us: float
    """One more launch in a CUDA graph."""


class Floor(Record):
    """The least time the problem's least work takes on this GPU."""

    least_bytes: int
    flops: int
    bandwidth_gb_s: float
    flops_rate_tflop_s: float
    bandwidth_source: Literal["measured", "datasheet"]
    gpu: str
    gpu_uuid: str | None = None
    """The card whose rates were measured; None for the datasheet's, and in old records."""
    gives_away: GivesAway | None = None
    """None where it was not looked for. Unused inputs, seen at the true shapes, are not among the
    least bytes; nothing else of it lowers the floor."""
    products: str = ""
    """Format that the rate is of: `tf32`, or the problem's dtype; empty in old records."""
    corrected: str = ""
    """Why the floor is lower than it first was: what a verified kernel showed."""
    costs: Costs | None = None
    """None where nothing was measured. No part of the floor."""

    @property
    def memory_ms(self) -> float:
        """Least bytes over bandwidth."""
        return self.least_bytes / self.bandwidth_gb_s / 1e6

    @property
    def compute_ms(self) -> float:
        """FLOPs over the rate of the fastest unit that is precise enough."""
        return self.flops / self.flops_rate_tflop_s / 1e9

    @property
    def time_ms(self) -> float:
        """The least time: the larger of memory's and arithmetic's."""
        return max(self.memory_ms, self.compute_ms)


class Profile(Record):
    """Every launch of one bound call."""

    source: Literal["ncu", "compiler"]
    gpu: str
    """The device measured, or the target compiled for."""
    launches: list[Launch]
    configurations: list[Configuration] = []
    """All that a kernel's autotuners chose from, the fastest first; none where there is no
    choice."""
    torch_operations: list[str] = []
    """Torch operations that a compiler's profile met and cannot see into."""
    note: str | None = None
    """Why this is not an Nsight Compute profile, where one was wanted."""
    modelled_ms: float | None = None
    """Time from the analytic model; only in a compiler's profile."""
    fingerprint: str | None = None
    """Hash of all that the call does on the GPU; calls with the same one are one kernel. Only in a
    compiler's profile, and none where an autotuner chooses."""
    traffic: dict[str, float] = {}
    """Bytes moved in the whole call at `dram`, `l2`, `l1`, and by lanes (`registers`).

    A level that is absent is missing.
    """


class FindingKind(StrEnum):
    """What can be wrong with a kernel, in one word each."""

    EXCESS_TRAFFIC = "excess_traffic"
    UNCOALESCED = "uncoalesced_access"
    NARROW_ACCESS = "narrow_access"
    LATENCY = "latency_not_hidden"
    OCCUPANCY = "low_occupancy"
    SPILLS = "register_spills"
    TAIL = "too_few_blocks"
    IDLE_MATRIX_UNITS = "idle_matrix_units"
    INTEGER_OVERHEAD = "integer_overhead"
    ISSUE_BOUND = "instruction_issue"
    EXCESS_ARITHMETIC = "excess_arithmetic"
    DIVERGENCE = "divergence"
    BANK_CONFLICTS = "bank_conflicts"
    ATOMICS = "atomics"
    SYNCHRONISATION = "synchronisation"
    MANY_LAUNCHES = "many_launches"
    LIBRARY_TIME = "library_time"
    LAUNCH_BOUND = "launch_bound"
    LAUNCH_PARAMETERS = "launch_parameters"
    AT_FLOOR = "at_the_floor"


Kind = Annotated[FindingKind | str, Field(union_mode="left_to_right")]
"""A kind of finding: one of these, or another package's own."""


class Finding(Record):
    """One thing a profile means."""

    kind: Kind
    title: str
    """One sentence a person can act on."""
    evidence: list[str]
    """What was seen: metric, value, line."""
    lines: list[int] = []
    gain_bound: float = Field(ge=1.0)
    """How many times faster the call could be if this alone were perfect."""
    assumes: str = ""
    """What that takes for granted."""
    advice: str
    """What is usually done about it."""
    seen_as: list[Kind] = []
    """Other kinds by which the same fault shows, with the same remedy."""
