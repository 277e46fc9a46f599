"""Reads an Nsight Compute report into a `Profile`."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Any

from kernel_profiling.compiler import sass
from kernel_profiling.errors import NcuFailed, ReportUnreadable
from kernel_profiling.gpus import SECTOR_BYTES
from kernel_profiling.ncu.line_counters import (
    Instruction,
    inlined_stalls,
    kernel_file,
    line_counters,
    load_lanes_on,
    read_instructions,
)
from kernel_profiling.ncu.metrics import BY_NAME, METRICS
from kernel_profiling.profile import Launch, Profile, Rule

_MAGIC = b"NVR\0"
"""How every report begins."""
NO_KERNEL = (
    "the report holds no kernel: nothing was launched between torch.cuda.profiler.start() "
    "and stop(); see that the call runs on the GPU and inside these two"
)

# A framework's or library's kernel, where neither names nor sources tell: C++ names, and the
# words NVIDIA's and PyTorch's own kernels carry.
_LIBRARY = re.compile(
    r"::|[<>(]|^void |cutlass|cublas|cudnn|nvjet|gemm|gemv|xmma|sm\d\d_|at_native|memcpy|memset"
    r"|elementwise_kernel|reduce_kernel|splitKreduce",
    re.IGNORECASE,
)
_LIMITS = (
    ("warps", "warps"),
    ("blocks", "blocks"),
    ("registers", "registers"),
    ("shared memory", "shared_mem"),
)
"""What limits the blocks of an SM, and its metric; on a tie the SM's own size comes first."""


def read_report(path: Path, kernels: Collection[str] | None = None, source: str = "") -> Profile:
    """Every launch of the profiled call, in order.

    `kernels` are the names of the candidate's own Triton kernels; without them a launch is taken
    for Triton's by its source file and its name. `source`: the text of their file, where it was
    compiled on another machine and the report has none. Raises ReportUnreadable, and NcuFailed
    where nothing was launched.
    """
    actions = list(_actions(path))
    if not actions:
        raise NcuFailed(NO_KERNEL)
    launches = [_launch(_Values(action), kernels, source) for action in actions]
    durations = [launch.duration_us or 0.0 for launch in launches]
    if all(launch.duration_us is not None for launch in launches) and any(durations):
        launches = [
            launch.with_values(share=duration / sum(durations))
            for launch, duration in zip(launches, durations, strict=True)
        ]
    gpu = _Values(actions[0]).get("device__attribute_display_name")
    return Profile(
        source="ncu",
        gpu=gpu if isinstance(gpu, str) and gpu else "unknown GPU",
        launches=launches,
        traffic=_traffic(launches),
    )


def _actions(path: Path) -> Iterator[Any]:
    try:
        import ncu_report
    except ImportError as error:
        raise ReportUnreadable(path, "the ncu-report package is not installed") from error
    if not path.is_file():
        raise ReportUnreadable(path, "there is no such file")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:  # the parser takes anything else for an empty report
            raise ReportUnreadable(path, "it is not a report")
    try:
        context = ncu_report.load_report(str(path))
    except RuntimeError as error:
        raise ReportUnreadable(path, error) from error
    for index in range(context.num_ranges()):
        for action in context.range_by_idx(index):
            if not action.name():  # what the parser makes of the end of a file cut short
                raise ReportUnreadable(path, "it is cut short")
            yield action


class _Values:
    """The metrics of one launch in a report."""

    def __init__(self, action: Any) -> None:
        self.action = action
        self.names = set(action.metric_names())

    def get(self, name: str) -> Any:
        """A metric's value; None where the report lacks it."""
        return self.action[name].value() if name in self.names else None

    def number(self, *names: str) -> float | None:
        """The first of these metrics that is a number."""
        values = (self.get(name) for name in names)
        numbers = (float(v) for v in values if isinstance(v, int | float) and math.isfinite(v))
        return next(numbers, None)

    def whole(self, *names: str) -> int | None:
        """The sum, as a whole number; None where one is missing."""
        values = [self.number(name) for name in names]
        return None if None in values else int(sum(value or 0 for value in values))

    def shape(self, prefix: str) -> tuple[int, int, int]:
        """Three metrics, each 1 where it is missing."""
        x, y, z = (self.whole(prefix + axis) or 1 for axis in "xyz")
        return x, y, z


def _launch(values: _Values, kernels: Collection[str] | None, source: str) -> Launch:
    action = values.action
    instructions = read_instructions(action)
    file = kernel_file(instructions)
    known = {metric.name: (values.number(*metric.ncu), metric.scale) for metric in METRICS}
    metrics = {name: n * scale for name, (n, scale) in known.items() if n is not None}
    metrics |= _derived(values, instructions)
    sources = action.source_files()
    text = (sources[file] if file and sources and file in sources else "") or source
    mix = Counter(i.kind for i in instructions if i.sass)
    run = [i.sass for i in instructions if i.executed != 0]
    occupancy = metrics.get("theoretical_occupancy")
    limits = {what: values.number(f"launch__occupancy_limit_{name}") for what, name in _LIMITS}
    known_limits = {what: blocks for what, blocks in limits.items() if blocks is not None}
    shared = (f"launch__shared_mem_per_block_{which}" for which in ("dynamic", "static"))
    return Launch(
        name=action.name(),
        triton=_is_triton(action.name(), file, kernels),
        grid=values.shape("launch__grid_dim_"),
        threads=values.whole("launch__block_size") or 0,
        duration_us=metrics.get("duration_us"),
        registers=values.whole("launch__registers_per_thread"),
        spill_bytes=_spill_bytes(instructions) if instructions else None,
        shared_bytes=values.whole(*shared),
        occupancy=occupancy / 100 if occupancy is not None else None,
        occupancy_limiter=min(known_limits, key=lambda what: known_limits[what], default=None),
        load_bits=sass.widest(run, "global_load"),
        store_bits=sass.widest(run, "global_store"),
        matrix_instructions=mix["matrix"] if instructions else None,
        instruction_mix=dict(mix.most_common()),
        metrics=metrics,
        lines=line_counters(instructions, file, text.splitlines()) if file else [],
        inlined_stalls=inlined_stalls(instructions),
        rules=list(_rules(action)),
        fingerprint=_fingerprint(values, instructions) if instructions else None,
    )


def _derived(values: _Values, instructions: list[Instruction]) -> dict[str, float]:
    """The metrics of `metrics.DERIVED`, each only where the report has what it is made of."""

    def executed(wanted: Iterable[Instruction]) -> float:
        return sum(i.executed or 0 for i in wanted)

    found: dict[str, float] = {}
    index = [i for i in instructions if i.kind in sass.INDEX_CLASSES]
    if whole := executed(instructions):
        found["integer_share"] = executed(index) / whole
        wide = executed(i for i in index if sass.is_wide_address(i.sass))
        found["wide_address_share"] = wide / whole
    for pipe in ("alu", "fma"):
        if whole := executed(i for i in instructions if sass.pipe(i.sass) == pipe):
            part = executed(i for i in index if sass.pipe(i.sass) == pipe)
            found[f"{pipe}_integer_share"] = part / whole
    lanes = load_lanes_on(instructions)
    if lanes is not None:
        found["load_lanes_on"] = lanes
    sectors = sum(i.sectors or 0 for i in instructions)
    ideal = sum(i.ideal_sectors or 0 for i in instructions)
    if sectors and ideal:
        found["sectors_over_ideal"] = sectors / ideal
    if any(i.lanes_on is not None for i in instructions):
        copied = values.number(*BY_NAME["tma_read_bytes"].ncu) or 0.0
        found["lane_bytes"] = copied + sum(
            (i.lanes_on or 0) * (sass.access_bits(i.sass) or 0) / 8
            for i in instructions
            if i.kind in sass.MEMORY_CLASSES
        )
        found["lane_flops"] = sum(
            (i.lanes_on or 0) * sass.float_operations(i.sass) for i in instructions
        )
    products = [i for i in instructions if i.kind == "matrix"]
    work = [(i.executed, sass.matrix_operations(i.sass)) for i in products]
    if instructions and all(times is not None and each for times, each in work):
        found["matrix_flops"] = sum((times or 0) * each for times, each in work)
    return found | _idle(values)


def _idle(values: _Values) -> dict[str, float]:
    """Shares of the time in which no instruction issued, by what the warps waited for.

    Idle slots over all slots, split as the samples taken while nothing issued are split.
    """
    prefix, suffix = "smsp__pcsamp_warps_issue_stalled_", "_not_issued"
    samples = {
        name.removeprefix(prefix).removesuffix(suffix): values.number(name) or 0.0
        for name in values.names
        if name.startswith(prefix) and name.endswith(suffix)
    }
    issued = values.number("sm__inst_issued.avg.pct_of_peak_sustained_elapsed")
    total = sum(samples.values())
    if not total or issued is None:
        return {}
    reasons = {
        "idle_memory": ("long_scoreboard", "lg_throttle", "drain"),
        "idle_barrier": ("barrier", "membar"),
        "idle_shared": ("short_scoreboard", "mio_throttle"),
        "idle_dependency": ("wait",),
    }
    return {
        name: (1 - issued / 100) * sum(samples.get(reason, 0.0) for reason in group) / total
        for name, group in reasons.items()
    }


def _spill_bytes(instructions: list[Instruction]) -> int:
    """Bytes of stack a thread stores to: the highest offset that a local store reaches."""
    highest = 0
    for instruction in instructions:
        if sass.operation(instruction.sass).startswith("STL"):
            offset = re.search(r"\[\w+(?:\.\w+)?\+(0x[0-9a-f]+)\]", instruction.sass)
            start = int(offset.group(1), 16) if offset else 0
            highest = max(highest, start + (sass.access_bits(instruction.sass) or 32) // 8)
    return highest


def _is_triton(name: str, file: str | None, kernels: Collection[str] | None) -> bool:
    if kernels is not None:
        return name in kernels
    if file is not None:
        return file.endswith(".py")
    return not _LIBRARY.search(name)


def _rules(action: Any) -> Iterator[Rule]:
    """Results of Nsight Compute's own rules that advise something (types 2 and up)."""
    for result in action.rule_results_as_dicts():
        message = result.get("rule_message") or {}
        text = str(message.get("message") or "")
        if not text or int(message.get("type") or 0) < 2:
            continue
        yield Rule(
            name=str(message.get("title") or result.get("name")),
            message=re.sub(r"@\w+:([^:@]+):[^@]*@", r"\1", text),
            estimated_speedup_percent=(result.get("speedup_estimation") or {}).get("speedup"),
        )


def _fingerprint(values: _Values, instructions: list[Instruction]) -> str:
    """Hash of code and launch; jump targets are absolute in a report, so they are left out."""
    code = (re.sub(r"0x7[0-9a-f]{9,}", "@", i.sass) for i in instructions)
    shape = (*values.shape("launch__grid_dim_"), *values.shape("launch__block_dim_"))
    return hashlib.sha256("\n".join([*code, repr(shape)]).encode()).hexdigest()[:16]


def _traffic(launches: list[Launch]) -> dict[str, float]:
    """Bytes of the whole call at each level; a level is absent unless every launch has it."""
    parts = {
        "dram": (1, ["dram_read_bytes", "dram_write_bytes"]),
        "l2": (SECTOR_BYTES, ["l2_sectors"]),
        "l1": (SECTOR_BYTES, ["l1_load_sectors", "l1_store_sectors"]),
        "registers": (1, ["lane_bytes"]),
    }
    return {
        level: sum(launch.metrics[name] * size for launch in launches for name in names)
        for level, (size, names) in parts.items()
        if all(name in launch.metrics for launch in launches for name in names)
    }
