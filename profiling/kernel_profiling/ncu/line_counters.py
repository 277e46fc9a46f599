"""Counters per instruction, gathered per line of the kernel's source, and drawn in its margin."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
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


COUNTERS = {
    "executed": "inst_executed",
    "lanes_on": "thread_inst_executed_true",
    "sectors": "memory_l2_theoretical_sectors_global",
    "ideal_sectors": "memory_l2_theoretical_sectors_global_ideal",
    "shared_passes": "memory_l1_wavefronts_shared",
    "ideal_shared_passes": "memory_l1_wavefronts_shared_ideal",
}
"""Field of an instruction -> Nsight Compute's counter."""


@dataclass
class Instruction:
    """One machine instruction of a launch and what was counted at it."""

    sass: str
    kind: str
    """Its class (see `kernel_profiling.compiler.sass`)."""
    file: str | None
    line: int | None
    stalls: dict[str, float]
    """Stall reason (our words) -> samples, `selected` left out: those warps issued."""
    executed: float | None
    lanes_on: float | None
    """Lanes the instruction worked for, summed over its executions."""
    sectors: float | None
    ideal_sectors: float | None
    shared_passes: float | None
    ideal_shared_passes: float | None


def read_instructions(action: Any) -> list[Instruction]:
    """Every instruction of a report's action, in order of address; none without the counters."""
    names = set(action.metric_names())
    counters = {field: _instances(action, name, names) for field, name in COUNTERS.items()}
    stalls = {
        name.removeprefix(_SAMPLED): _instances(action, name, names)
        for name in names
        if name.startswith(_SAMPLED)
        and not name.endswith("_not_issued")
        and name != _SAMPLED + "selected"
    }
    instructions = []
    for address in sorted(counters["executed"]):
        where = action.source_info(address)
        code = (action.sass_by_pc(address) or "").strip()
        instructions.append(
            Instruction(
                sass=code,
                kind=sass.instruction_class(code),
                file=where.file_name() if where else None,
                line=where.line() if where else None,
                stalls={
                    _STALL_NAMES.get(reason, reason): samples[address]
                    for reason, samples in stalls.items()
                    if samples.get(address)
                },
                **{field: values.get(address) for field, values in counters.items()},
            )
        )
    return instructions


def _instances(action: Any, name: str, names: set[str]) -> dict[int, float]:
    """Address -> value of a counter of each instruction."""
    if name not in names or not action[name].has_correlation_ids():
        return {}
    metric = action[name]
    addresses = metric.correlation_ids()
    return {addresses.as_uint64(i): metric.as_double(i) for i in range(metric.num_instances())}


def kernel_file(instructions: Iterable[Instruction]) -> str | None:
    """The source file most of the kernel comes from, Triton's own library left out."""
    files = (i.file for i in instructions if i.file and not _is_library(i.file))
    return next((file for file, _ in Counter(files).most_common(1)), None)


def _is_library(file: str) -> bool:
    return any(part in file for part in ("/triton/language/", "/triton/experimental/"))


def line_counters(
    instructions: Sequence[Instruction], file: str, source: Sequence[str]
) -> list[LineCounters]:
    """Counters of the lines of `file`, in order; `source` are its lines, or empty.

    Shares are of the whole launch, so what was inlined from other files is what is missing to 1.
    """
    all_stalls = sum(sum(i.stalls.values()) for i in instructions)
    all_executed = _total(i.executed for i in instructions)
    by_line: dict[int, list[Instruction]] = defaultdict(list)
    for instruction in instructions:
        if instruction.file == file and instruction.line:
            line = instruction.line
            if instruction.kind in sass.MEMORY_CLASSES:
                line = access_line(line, source)
            by_line[line].append(instruction)
    return [
        _one_line(
            LineCounters(line=line, text=source[line - 1].strip() if line <= len(source) else ""),
            group,
            all_stalls,
            all_executed,
        )
        for line, group in sorted(by_line.items())
    ]


def inlined_stalls(instructions: Sequence[Instruction]) -> dict[str, float]:
    """Reason -> share of the launch's stalls that are in Triton's own library: in what it has for
    reductions and scans, which no line of the kernel's file is charged with."""
    all_stalls = sum(sum(i.stalls.values()) for i in instructions)
    found: Counter[str] = Counter()
    for instruction in instructions:
        if instruction.file and _is_library(instruction.file):
            found.update(instruction.stalls)
    return {name: round(n / all_stalls, 4) for name, n in found.most_common() if all_stalls}


def _one_line(
    line: LineCounters, group: list[Instruction], all_stalls: float, all_executed: float | None
) -> LineCounters:
    stalls: Counter[str] = Counter()
    for instruction in group:
        stalls.update(instruction.stalls)
    stalled = sum(stalls.values())
    counted = [i for i in group if i.executed is not None]
    executed = _total(i.executed for i in group)

    def executions(kinds: Collection[str]) -> int | None:
        of_kind = (i.executed or 0 for i in counted if i.kind in kinds)
        return int(sum(of_kind)) if counted else None

    requests = _total(i.executed for i in group if i.sectors is not None)
    sectors, ideal = _total(i.sectors for i in group), _total(i.ideal_sectors for i in group)
    passes = _total(i.shared_passes for i in group)
    ideal_passes = _total(i.ideal_shared_passes for i in group)
    run = [i.sass for i in group if i.executed != 0]
    return line.with_values(
        stall_share=stalled / all_stalls if all_stalls else None,
        stall_reasons={name: round(n / stalled, 4) for name, n in stalls.most_common()},
        instructions=None if executed is None else int(executed),
        instruction_share=_ratio(executed, all_executed),
        sectors_per_request=_ratio(sectors, requests),
        ideal_sectors_per_request=_ratio(ideal, requests),
        bank_conflicts=None if passes is None or ideal_passes is None else passes - ideal_passes,
        load_bits=sass.widest(run, "global_load"),
        store_bits=sass.widest(run, "global_store"),
        spill_instructions=executions({"local"}),
        index_instructions=executions(sass.INDEX_CLASSES),
        divisions=sum(sass.is_division(i.sass) for i in group),
        load_lanes_on=load_lanes_on(group),
        copies=int(sum(i.executed or 0 for i in counted if sass.is_bulk_copy(i.sass))) or None,
    )


def load_lanes_on(instructions: Iterable[Instruction]) -> float | None:
    """Lanes, of 32, that the masked global loads load for; None where there is no such load. Copies
    of whole blocks are none: one lane begins them."""
    masked = [
        i
        for i in instructions
        if i.executed
        and i.lanes_on is not None
        and i.kind == "global_load"
        and i.sass.startswith("@")  # a predicate may switch lanes off
        and not sass.is_bulk_copy(i.sass)
    ]
    return _ratio(_total(i.lanes_on for i in masked), _total(i.executed for i in masked))


def _total(values: Iterable[float | None]) -> float | None:
    """Sum of what is known; None where nothing is."""
    known = [value for value in values if value is not None]
    return float(sum(known)) if known else None


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def annotate(profile: Profile, source: str) -> str:
    """The source with a margin: % of stalls, % of instructions, sectors per request, load bits.

    A line's numbers are shown where its text is the one that was profiled. Launches are weighted
    by their share of the call; a compiler's profile has no stalls, and its column stays empty.
    """
    stalls: dict[int, float] = defaultdict(float)
    instructions: dict[int, float] = defaultdict(float)
    sectors: dict[int, float | None] = {}
    bits: dict[int, int | None] = {}
    lines = source.splitlines()
    own = [launch for launch in profile.launches if launch.lines]
    for launch in own:
        weight = launch.share if launch.share is not None else 1 / len(own)
        for seen in launch.lines:
            number = seen.line
            if not 0 < number <= len(lines) or (
                seen.text and lines[number - 1].strip() != seen.text.strip()
            ):
                continue
            if seen.stall_share is not None:
                stalls[number] += weight * seen.stall_share
            if seen.instruction_share is not None:
                instructions[number] += weight * seen.instruction_share
            width = seen.load_bits or seen.store_bits
            if width or seen.sectors_per_request is not None:
                sectors[number], bits[number] = seen.sectors_per_request, width

    def cell(value: float | None, width: int, scale: float) -> str:
        return " " * width if value is None else f"{value * scale:{width}.1f}"

    rows = [f"{'stall%':>6} {'inst%':>6} {'sect/req':>8} {'bits':>4} |"]
    for number, text in enumerate(lines, start=1):
        shares = f"{cell(stalls.get(number), 6, 100)} {cell(instructions.get(number), 6, 100)}"
        accesses = f"{cell(sectors.get(number), 8, 1)} {bits.get(number) or '':>4}"
        rows.append(f"{shares} {accesses} | {text}".rstrip())
    return "\n".join(rows) + "\n"
