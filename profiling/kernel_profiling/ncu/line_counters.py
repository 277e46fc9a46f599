"""Counters per instruction, gathered per line of the kernel's source, and drawn in its margin."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_profiling.compiler import sass
from kernel_profiling.compiler.statements import access_line
from kernel_profiling.profile import LineCounters, Profile

_SAMPLED = "smsp__pcsamp_warps_issue_stalled_"
_STALL_NAMES = {
    "long_scoreboard": "memory",
    "short_scoreboard": "shared memory or special unit",
    "math_pipe_throttle": "arithmetic pipe busy",
    "mio_throttle": "memory queue full",
    "lg_throttle": "load/store queue full",
    "wait": "earlier result",
    "not_selected": "another warp issued",
    "no_instructions": "instruction fetch",
    "dispatch_stall": "dispatch",
    "imc_miss": "constant fetch",
    "branch_resolving": "branch",
}


@dataclass
class Instruction:
    """One machine instruction of a launch and what was counted at it."""

    sass: str
    file: str | None
    line: int | None
    executed: float | None
    lanes_on: float | None
    """Lanes the instruction worked for, summed over its executions."""
    sectors: float | None
    ideal_sectors: float | None
    shared_passes: float | None
    ideal_shared_passes: float | None
    stalls: dict[str, float] = field(default_factory=dict)
    """Stall reason (our words) -> samples, `selected` left out: those warps issued."""


def read_instructions(action: Any) -> list[Instruction]:
    """Every instruction of a report's action, in order of address; none without the counters."""
    names = set(action.metric_names())
    executed = _instances(action, "inst_executed", names)
    lanes = _instances(action, "thread_inst_executed_true", names)
    sectors = _instances(action, "memory_l2_theoretical_sectors_global", names)
    ideal = _instances(action, "memory_l2_theoretical_sectors_global_ideal", names)
    passes = _instances(action, "memory_l1_wavefronts_shared", names)
    ideal_passes = _instances(action, "memory_l1_wavefronts_shared_ideal", names)
    stalls = {
        name.removeprefix(_SAMPLED): _instances(action, name, names)
        for name in names
        if name.startswith(_SAMPLED)
        and not name.endswith("_not_issued")
        and name != _SAMPLED + "selected"
    }
    instructions = []
    for address in sorted(executed):
        where = action.source_info(address)
        instructions.append(
            Instruction(
                sass=(action.sass_by_pc(address) or "").strip(),
                file=where.file_name() if where else None,
                line=where.line() if where else None,
                executed=executed.get(address),
                lanes_on=lanes.get(address),
                sectors=sectors.get(address),
                ideal_sectors=ideal.get(address),
                shared_passes=passes.get(address),
                ideal_shared_passes=ideal_passes.get(address),
                stalls={
                    _STALL_NAMES.get(reason, reason): samples[address]
                    for reason, samples in stalls.items()
                    if samples.get(address)
                },
            )
        )
    return instructions


def _instances(action: Any, name: str, names: set[str]) -> dict[int, float]:
    """Address -> value of a counter kept per instruction."""
    if name not in names:
        return {}
    metric = action[name]
    if not metric.has_correlation_ids():
        return {}
    addresses = metric.correlation_ids()
    return {addresses.as_uint64(i): metric.as_double(i) for i in range(metric.num_instances())}


def kernel_file(instructions: Iterable[Instruction]) -> str | None:
    """The source file most of the kernel comes from, Triton's own library left out."""
    counts: dict[str, int] = defaultdict(int)
    for instruction in instructions:
        path = instruction.file
        if path and "/triton/language/" not in path and "/triton/experimental/" not in path:
            counts[path] += 1
    return max(counts, key=lambda path: counts[path]) if counts else None


def line_counters(
    instructions: Sequence[Instruction], file: str, source: Sequence[str]
) -> list[LineCounters]:
    """Counters of the lines of `file`, in order; `source` are its lines, or empty.

    Shares are of the whole launch, so what was inlined from other files is what is missing to 1.
    """
    all_stalls = _total(sum(i.stalls.values()) for i in instructions) or None
    all_executed = _total(i.executed for i in instructions) or None
    by_line: dict[int, list[Instruction]] = defaultdict(list)
    for instruction in instructions:
        if instruction.file == file and instruction.line:
            line = instruction.line
            if sass.instruction_class(instruction.sass) in sass.MEMORY_CLASSES:
                line = access_line(line, source)
            by_line[line].append(instruction)
    return [
        _one_line(
            number,
            source[number - 1].strip() if number <= len(source) else "",
            group,
            all_stalls,
            all_executed,
        )
        for number, group in sorted(by_line.items())
    ]


def _one_line(
    number: int,
    text: str,
    group: list[Instruction],
    all_stalls: float | None,
    all_executed: float | None,
) -> LineCounters:
    stalls: dict[str, float] = defaultdict(float)
    for instruction in group:
        for reason, samples in instruction.stalls.items():
            stalls[reason] += samples
    stalled = sum(stalls.values())
    executed = _total(i.executed for i in group)
    global_ = [i for i in group if i.sectors is not None]
    requests = _total(i.executed for i in global_)
    sectors, ideal = _total(i.sectors for i in global_), _total(i.ideal_sectors for i in global_)
    passes = _total(i.shared_passes for i in group)
    ideal_passes = _total(i.ideal_shared_passes for i in group)
    run = [i for i in group if i.executed != 0]
    return LineCounters(
        line=number,
        text=text,
        stall_share=stalled / all_stalls if all_stalls else None,
        stall_reasons={
            reason: round(samples / stalled, 4)
            for reason, samples in sorted(stalls.items(), key=lambda pair: -pair[1])
        }
        if stalled
        else {},
        instructions=int(executed) if executed is not None else None,
        instruction_share=(
            executed / all_executed if executed is not None and all_executed else None
        ),
        sectors_per_request=sectors / requests if requests and sectors is not None else None,
        ideal_sectors_per_request=ideal / requests if requests and ideal is not None else None,
        bank_conflicts=(
            passes - ideal_passes if passes is not None and ideal_passes is not None else None
        ),
        load_bits=sass.widest((i.sass for i in run), "global_load"),
        store_bits=sass.widest((i.sass for i in run), "global_store"),
        spill_instructions=_count(group, lambda i: sass.instruction_class(i.sass) == "local"),
        index_instructions=_count(
            group, lambda i: sass.instruction_class(i.sass) in sass.INDEX_CLASSES
        ),
        divisions=sum(sass.is_division(i.sass) for i in group),
        load_lanes_on=load_lanes_on(group),
    )


def _count(group: Iterable[Instruction], wanted: Callable[[Instruction], bool]) -> int | None:
    """Executions of the wanted instructions; None where executions were not counted."""
    known = [i for i in group if i.executed is not None]
    return int(sum(i.executed or 0 for i in known if wanted(i))) if known else None


def load_lanes_on(instructions: Iterable[Instruction]) -> float | None:
    """Lanes, of 32, that the masked global loads load for; None where there is no such load."""
    masked = [
        i
        for i in instructions
        if i.executed
        and i.lanes_on is not None
        and sass.instruction_class(i.sass) == "global_load"
        and sass.is_predicated(i.sass)
    ]
    lanes, runs = _total(i.lanes_on for i in masked), _total(i.executed for i in masked)
    return lanes / runs if runs and lanes is not None else None


def _total(values: Iterable[float | None]) -> float | None:
    """Sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None


def annotate(profile: Profile, source: str) -> str:
    """The source with a margin: % of stalls, % of instructions, sectors per request, load bits.

    A line's numbers are shown where its text is the one that was profiled. Launches are weighted
    by their share of the call; a compiler's profile has no stalls, and its column stays empty.
    """
    stalls: dict[int, float] = defaultdict(float)
    instructions: dict[int, float] = defaultdict(float)
    accesses: dict[int, tuple[float | None, int | None]] = {}
    lines = source.splitlines()
    own = [launch for launch in profile.launches if launch.lines]
    for launch in own:
        weight = launch.share if launch.share is not None else 1 / len(own)
        for counters in launch.lines:
            known = 0 < counters.line <= len(lines)
            if not known or (
                counters.text and lines[counters.line - 1].strip() != counters.text.strip()
            ):
                continue
            if counters.stall_share is not None:
                stalls[counters.line] += weight * counters.stall_share
            if counters.instruction_share is not None:
                instructions[counters.line] += weight * counters.instruction_share
            bits = counters.load_bits or counters.store_bits
            if bits or counters.sectors_per_request is not None:
                accesses[counters.line] = (counters.sectors_per_request, bits)
    head = f"{'stall%':>6} {'inst%':>6} {'sect/req':>8} {'bits':>4} |"
    rows = [head]
    for number, text in enumerate(lines, start=1):
        sectors, bits = accesses.get(number, (None, None))
        cells = (
            _cell(stalls.get(number), 6, 100),
            _cell(instructions.get(number), 6, 100),
            _cell(sectors, 8, 1),
            f"{bits or '':>4}",
        )
        rows.append(f"{' '.join(cells)} | {text}".rstrip())
    return "\n".join(rows) + "\n"


def _cell(value: float | None, width: int, scale: float) -> str:
    return " " * width if value is None else f"{value * scale:{width}.1f}"
