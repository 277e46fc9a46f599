"""Reads an Nsight Compute report into a `Profile`."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from kernel_profiling.compiler import sass
from kernel_profiling.errors import NcuEmptyReport, ReportUnreadable
from kernel_profiling.gpus import SECTOR_BYTES
from kernel_profiling.ncu.line_counters import (
    Instruction,
    kernel_file,
    line_counters,
    load_lanes_on,
    read_instructions,
)
from kernel_profiling.ncu.metrics import BY_NAME, METRICS
from kernel_profiling.profile import Launch, Profile, Rule

_MAGIC = b"NVR\0"
"""How every report begins."""

# A framework's or library's kernel, where neither names nor sources tell: C++ names, and the
# words NVIDIA's and PyTorch's own kernels carry.
_LIBRARY = re.compile(
    r"::|[<>(]|^void |cutlass|cublas|cudnn|nvjet|gemm|gemv|xmma|sm\d\d_|at_native|memcpy|memset"
    r"|elementwise_kernel|reduce_kernel|splitKreduce",
    re.IGNORECASE,
)
_LIMITS = {
    "launch__occupancy_limit_registers": "registers",
    "launch__occupancy_limit_shared_mem": "shared memory",
    "launch__occupancy_limit_warps": "warps",
    "launch__occupancy_limit_blocks": "blocks",
}


def read_report(path: Path, kernels: Collection[str] | None = None) -> Profile:
    """Every launch of the profiled call, in order.

    `kernels` are the names of the candidate's own Triton kernels; without them a launch is taken
    for Triton's by its source file and its name. Raises ReportUnreadable, and NcuEmptyReport where
    nothing was launched.
    """
    actions = list(_actions(path))
    if not actions:
        raise NcuEmptyReport
    launches = [_launch(action, kernels) for action in actions]
    durations = [launch.duration_us for launch in launches]
    known = [duration for duration in durations if duration is not None]
    total = sum(known) if len(known) == len(durations) else 0.0
    if total:
        launches = [
            launch.model_copy(update={"share": launch.duration_us / total})
            for launch in launches
            if launch.duration_us is not None
        ]
    return Profile(
        source="ncu",
        gpu=_device_name(actions[0]),
        launches=launches,
        traffic=_traffic(launches),
    )


def _actions(path: Path) -> Iterator[Any]:
    try:
        import ncu_report
    except ImportError as error:
        raise ReportUnreadable(str(path), "the ncu-report package is not installed") from error
    if not path.is_file():
        raise ReportUnreadable(str(path), "there is no such file")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:  # the parser takes anything else for an empty report
            raise ReportUnreadable(str(path), "it is not a report")
    try:
        context = ncu_report.load_report(str(path))
    except RuntimeError as error:
        raise ReportUnreadable(str(path), str(error)) from error
    for index in range(context.num_ranges()):
        for action in context.range_by_idx(index):
            if not action.name():  # what the parser makes of the end of a file cut short
                raise ReportUnreadable(str(path), "it is cut short")
            yield action


def _launch(action: Any, kernels: Collection[str] | None) -> Launch:
    names = set(action.metric_names())
    instructions = read_instructions(action)
    file = kernel_file(instructions)
    metrics = _metrics(action, names) | _derived(action, names, instructions)
    sources = action.source_files()
    text = sources[file] if file and sources and file in sources else ""
    mix = Counter(sass.instruction_class(i.sass) for i in instructions if i.sass)
    run = [i.sass for i in instructions if i.executed != 0]
    dynamic = _number(action, names, "launch__shared_mem_per_block_dynamic")
    static = _number(action, names, "launch__shared_mem_per_block_static")
    occupancy = metrics.get("theoretical_occupancy")
    return Launch(
        name=action.name(),
        triton=_is_triton(action.name(), file, kernels),
        grid=_shape(action, names, "launch__grid_dim_"),
        threads=int(_number(action, names, "launch__block_size") or 0),
        duration_us=metrics.get("duration_us"),
        registers=_whole(_number(action, names, "launch__registers_per_thread")),
        spill_bytes=_spill_bytes(instructions) if instructions else None,
        shared_bytes=_whole(
            dynamic + static if dynamic is not None and static is not None else None
        ),
        occupancy=occupancy / 100 if occupancy is not None else None,
        occupancy_limiter=_limiter(action, names),
        load_bits=sass.widest(run, "global_load"),
        store_bits=sass.widest(run, "global_store"),
        matrix_instructions=mix["matrix"] if instructions else None,
        instruction_mix=dict(mix.most_common()),
        metrics=metrics,
        lines=line_counters(instructions, file, text.splitlines()) if file else [],
        rules=list(_rules(action)),
        fingerprint=_fingerprint(action, names, instructions) if instructions else None,
    )


def _metrics(action: Any, names: set[str]) -> dict[str, float]:
    values = {}
    for metric in METRICS:
        for name in metric.ncu:
            number = _number(action, names, name)
            if number is not None:
                values[metric.name] = number * metric.scale
                break
    return values


def _derived(action: Any, names: set[str], instructions: list[Instruction]) -> dict[str, float]:
    """The metrics of `metrics.DERIVED`, each only where the report has what it is made of."""
    values: dict[str, float] = {}
    executed = sum(i.executed or 0 for i in instructions)
    if executed:
        index = [i for i in instructions if sass.instruction_class(i.sass) in sass.INDEX_CLASSES]
        values["integer_share"] = sum(i.executed or 0 for i in index) / executed
        wide = (i.executed or 0 for i in index if sass.is_wide_address(i.sass))
        values["wide_address_share"] = sum(wide) / executed
        for pipe in ("alu", "fma"):
            whole = sum(i.executed or 0 for i in instructions if sass.pipe(i.sass) == pipe)
            if whole:
                part = sum(i.executed or 0 for i in index if sass.pipe(i.sass) == pipe)
                values[f"{pipe}_integer_share"] = part / whole
    lanes = load_lanes_on(instructions)
    if lanes is not None:
        values["load_lanes_on"] = lanes
    sectors = sum(i.sectors or 0 for i in instructions)
    ideal = sum(i.ideal_sectors or 0 for i in instructions)
    if sectors and ideal:
        values["sectors_over_ideal"] = sectors / ideal
    lanes_known = [i for i in instructions if i.lanes_on is not None]
    if lanes_known:
        copied = _number(action, names, *BY_NAME["tma_read_bytes"].ncu) or 0.0
        values["lane_bytes"] = copied + sum(
            (i.lanes_on or 0) * (sass.access_bits(i.sass) or 0) / 8
            for i in lanes_known
            if sass.instruction_class(i.sass) in sass.MEMORY_CLASSES
        )
        values["lane_flops"] = sum(
            (i.lanes_on or 0) * sass.float_operations(i.sass) for i in lanes_known
        )
    return values | _idle(action, names)


def _idle(action: Any, names: set[str]) -> dict[str, float]:
    """Shares of the time in which no instruction issued, by what the warps waited for.

    Idle slots over all slots, split as the samples taken while nothing issued are split.
    """
    prefix, suffix = "smsp__pcsamp_warps_issue_stalled_", "_not_issued"
    samples = {
        name.removeprefix(prefix).removesuffix(suffix): _number(action, names, name) or 0.0
        for name in names
        if name.startswith(prefix) and name.endswith(suffix)
    }
    issued = _number(action, names, "sm__inst_issued.avg.pct_of_peak_sustained_elapsed")
    total = sum(samples.values())
    if not total or issued is None:
        return {}
    idle = 1 - issued / 100
    reasons = {
        "idle_memory": ("long_scoreboard", "lg_throttle", "drain"),
        "idle_barrier": ("barrier", "membar"),
        "idle_shared": ("short_scoreboard", "mio_throttle"),
        "idle_dependency": ("wait",),
    }
    return {
        name: idle * sum(samples.get(reason, 0.0) for reason in group) / total
        for name, group in reasons.items()
    }


def _number(action: Any, names: set[str], name: str) -> float | None:
    """A metric's value; None where the report lacks it or holds no number."""
    if name not in names:
        return None
    value = action[name].value()
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def _device_name(action: Any) -> str:
    name = "device__attribute_display_name"
    value = action[name].value() if name in set(action.metric_names()) else None
    return value if isinstance(value, str) and value else "unknown GPU"


def _shape(action: Any, names: set[str], prefix: str) -> tuple[int, int, int]:
    x, y, z = (int(_number(action, names, prefix + axis) or 1) for axis in "xyz")
    return x, y, z


def _limiter(action: Any, names: set[str]) -> str | None:
    """What lets the fewest blocks onto an SM; on a tie the SM's own size (warps, blocks)."""
    limits = {what: _number(action, names, name) for name, what in _LIMITS.items()}
    known = {what: blocks for what, blocks in limits.items() if blocks is not None}
    order = ["warps", "blocks", "registers", "shared memory"]
    return min(known, key=lambda what: (known[what], order.index(what)), default=None)


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
        text = re.sub(r"@\w+:([^:@]+):[^@]*@", r"\1", text)
        speedup = result.get("speedup_estimation") or {}
        title = message.get("title") or result.get("name")
        yield Rule(
            name=str(title),
            message=text,
            estimated_speedup_percent=speedup.get("speedup"),
        )


def _fingerprint(action: Any, names: set[str], instructions: list[Instruction]) -> str:
    """Hash of code and launch; jump targets are absolute in a report, so they are left out."""
    code = (re.sub(r"0x7[0-9a-f]{9,}", "@", i.sass) for i in instructions)
    shape = (
        *_shape(action, names, "launch__grid_dim_"),
        *_shape(action, names, "launch__block_dim_"),
    )
    return hashlib.sha256("\n".join([*code, repr(shape)]).encode()).hexdigest()[:16]


def _traffic(launches: list[Launch]) -> dict[str, float]:
    """Bytes of the whole call at each level; a level is absent unless every launch has it."""
    parts = {
        "dram": (("dram_read_bytes", 1), ("dram_write_bytes", 1)),
        "l2": (("l2_sectors", SECTOR_BYTES),),
        "l1": (("l1_load_sectors", SECTOR_BYTES), ("l1_store_sectors", SECTOR_BYTES)),
        "registers": (("lane_bytes", 1),),
    }
    traffic = {}
    for level, terms in parts.items():
        if all(name in launch.metrics for launch in launches for name, _ in terms):
            traffic[level] = sum(
                launch.metrics[name] * size for launch in launches for name, size in terms
            )
    return traffic
