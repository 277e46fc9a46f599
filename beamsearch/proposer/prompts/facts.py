"""What is known of a situation, in the words a prompt uses.

A modelled number carries `~` and is called modelled; what is missing is said to be missing.
"""

from __future__ import annotations

import re
from typing import Any

from beamsearch.proposer.questions import DiagnosisQuestion, FirstQuestion, Question, Situation
from beamsearch.records.measurement import Measurement
from kernel_profiling.compiler.occupancy import limits_per_sm
from kernel_profiling.findings.budget import UNITS, WAITS, Budget, make_case
from kernel_profiling.findings.findings import WORTH
from kernel_profiling.findings.whole_call import matrix_work
from kernel_profiling.gpus import GPUS, Gpu, UnknownGpu, find_gpu
from kernel_profiling.profile import Costs, Finding, Floor, Launch, Profile

LAUNCHES = 6
"""Launches listed, by share of the call; a call with more has a finding that says so."""
BUSIEST = 3
"""Units of a launch that are told, device memory, and the matrix units wherever they are used."""
WAITED = 0.05
"""Share of the time from which a wait is told."""
CODE_CHARACTERS = 60
"""Of a line of code that stands for its number."""
SHORTEST_QUOTE = 12
"""Characters of a line of code that a text holds only where it quotes it."""
LOWERED = 8
"""Facts on products and loops."""
REASON_CHARACTERS = 240
LINES_QUOTED = 4
CONFIGURATIONS = 6
"""Of an autotuner's, the fastest."""
RULES = 3
LEAST_RULE = 1.0
"""Percent of the call that a rule estimates at least."""
SMALL_LAUNCH = 0.02
"""Share of the call below which a launch is told in short."""
RULE_CHARACTERS = 320
NO_HELP = ("Low Compression Rate", "PM Sampling Data", "Theoretical Occupancy")
"""Rules of Nsight Compute that no change of a kernel's source answers."""
LEVELS = {"dram": "DRAM", "l2": "L2", "l1": "L1", "registers": "registers"}


_UNSET = re.compile(r",? ?\b(num_ctas: 1|maxnreg: None)\b")
"""Parts of an autotuner's configuration that say nothing."""


def gpu(name: str, dtype: str) -> str:
    """The GPU in a sentence, from the datasheet where the part is known."""
    part = _part(name)
    if part is None:
        return f"The GPU: {name}."
    matrix = {"float32": "tf32", "bfloat16": "bfloat16", "float16": "float16"}.get(dtype)
    plain = "float64" if dtype == "float64" else "float32"
    rates = [f"{part.tflops[plain]:.4g} TFLOP/s {plain} on the ordinary cores"]
    if matrix:
        rates.insert(0, f"{part.tflops[matrix]:.4g} TFLOP/s {matrix} on the matrix units")
    return (
        f"The GPU: NVIDIA {part.name} (compute capability {part.capability / 10}), "
        f"{part.sms} SMs, each with {part.shared_bytes_per_sm >> 10} KiB of shared memory, "
        f"{part.registers_per_sm} registers and room for {part.max_warps_per_sm} warps; "
        f"{part.l2_bytes >> 20} MiB of L2; {part.bandwidth_gb_s:.4g} GB/s of memory bandwidth; "
        f"{', '.join(rates)} (datasheet)."
    )


def tolerance(dtype: str) -> str:
    """What the judge allows an element, in words."""
    return "1%" if dtype in ("float16", "bfloat16") else "0.1%"


def _part(name: str) -> Gpu | None:
    """The part with this device name, key, or own name; None where it is not in the table."""
    for part in GPUS.values():
        if name == part.name:
            return part
    try:
        return find_gpu(name)
    except UnknownGpu:
        return None


def capability(name: str) -> float | None:
    """Compute capability of the GPU, as 9.0; None where the part is not known."""
    part = _part(name)
    return None if part is None else part.capability / 10


def rules(profile: Profile) -> list[str]:
    """Nsight Compute's own advice, the largest estimates first, each weighed by its launch's share
    of the call."""
    found = [
        (rule.estimated_speedup_percent * (launch.share or 1.0), launch.name, rule)
        for launch in profile.launches
        for rule in launch.rules
        if rule.estimated_speedup_percent and rule.name not in NO_HELP
    ]
    found = [item for item in found if item[0] >= LEAST_RULE]
    several = len(profile.launches) > 1
    lines = []
    for percent, name, rule in sorted(found, key=lambda item: -item[0])[:RULES]:
        # Without the sentences that point into the profiler's own pages.
        sentences = re.split(r"(?<=\.)\s+", rule.message)
        said = [s for s in sentences if not re.match(r"(Check|See|Look at|Refer|The CUDA) ", s)]
        where = f" in `{name}`" if several else ""
        message = one_line(" ".join(said), RULE_CHARACTERS)
        lines.append(f"{rule.name}{where} (estimates {percent:.0f}%): {message}")
    return lines


def numbered(annotated: str) -> str:
    """The annotated source with line numbers, as findings name them; its first line is a head."""
    head, _, body = annotated.partition("\n")
    lines = body.splitlines()
    return "\n".join([f"line {head}", *(f"{n:4} {line}" for n, line in enumerate(lines, 1))])


def standing(question: Question | FirstQuestion) -> list[str]:
    """Time, floor, distance, traffic and launches, a line each; of a problem that has no kernel
    yet the floor."""
    floor, lines = question.floor, []
    if floor is None:
        lines.append("Floor: not known.")
    else:
        given = floor.gives_away
        lines += [_floor(floor)] + ([given.sentence] if given and given.sentence else [])
        lines += [_costs(floor.costs)] if floor.costs else []
    if isinstance(question, FirstQuestion):
        return lines
    time = question.parent_time
    if floor is not None:
        distance = "Distance to the floor: not known."
        if time is not None and floor.time_ms > 0:
            times = time.time_ms / floor.time_ms
            distance = f"Distance: {tilde(time)}{times:.3g} times the floor."
        lines.insert(1, distance)
    found = profiled(question.profile, floor)
    return [_time(time), *lines, *(_for_reader(question, line) for line in found)]


def profile_note(profile: Profile) -> str:
    """What a reader must know to weigh a compiler's profile; nothing for Nsight Compute's."""
    if profile.source == "ncu":
        return ""
    note = (
        f"Nothing was run: the profile is what the compiler shows for {profile.gpu}. Times and "
        "traffic marked ~ are modelled, not measured."
    )
    if profile.torch_operations:
        note += f" Work in torch operations is missing: {', '.join(profile.torch_operations)}."
    return f"{note} {one_line(profile.note)}" if profile.note else note


def _time(time: Measurement | None) -> str:
    if time is None:
        return "Time: not known."
    if time.source == "modelled":
        return f"Time: {time} (modelled)."
    spread = f"; 20% to 80% of calls {time.p20_ms:.4g} to {time.p80_ms:.4g} ms"
    how = f"measured with a cold L2, start and end of the call included{spread}"
    return f"Time: {time} ({how}); launches' times are the profiler's."


def _costs(costs: Costs) -> str:
    return (
        f"Seen on this GPU: {costs.l2_gb_s:.4g} GB/s from the L2 for what is in it (a call begins "
        f"with a cold one); {costs.barrier_us:.2g} us for a barrier across the grid (a program an "
        f"SM, launched together); {costs.launch_us:.2g} us for one launch more."
    )


def _floor(floor: Floor) -> str:
    rate = "measured on this GPU" if floor.bandwidth_source == "measured" else "datasheet"
    why = f" It was lowered: {floor.corrected}." if floor.corrected else ""
    kind = " in TF32" if floor.products == "tf32" else ""
    memory = f"{size(floor.least_bytes)} moved once at {floor.bandwidth_gb_s:.4g} GB/s ({rate})"
    if not floor.flops:
        return f"Floor: {floor.time_ms:.3g} ms, for the least bytes, {memory}.{why}"
    compute = (
        f"{floor.flops / 1e9:.3g} GFLOP at {floor.flops_rate_tflop_s:.4g} TFLOP/s{kind}, "
        f"{floor.compute_ms:.3g} ms"
    )
    if floor.memory_ms >= floor.compute_ms:
        return (
            f"Floor: {floor.time_ms:.3g} ms, for the least bytes, {memory}. Arithmetic: {compute}."
            f"{why}"
        )
    return (
        f"Floor: {compute}, for the arithmetic. The least bytes, {memory}, take "
        f"{floor.memory_ms:.3g} ms.{why}"
    )


def _traffic(profile: Profile, floor: Floor | None) -> str:
    tilde = "~" if profile.source == "compiler" else ""
    rates = {"dram": floor.bandwidth_gb_s} if floor else {}
    rates |= {"l2": floor.costs.l2_gb_s} if floor and floor.costs else {}
    parts = []
    for level, name in LEVELS.items():
        moved = profile.traffic.get(level)
        if moved is None:
            continue
        least = floor.least_bytes if floor else 0
        multiple = f", {tilde}{moved / least:.3g} times the least" if least else ""
        takes = f" (takes {tilde}{moved / rates[level] / 1e6:.3g} ms)" if level in rates else ""
        parts.append(f"{name} {tilde}{size(moved)}{multiple}{takes}")
    missing = [name for level, name in LEVELS.items() if level not in profile.traffic]
    if missing:
        parts.append(f"{', '.join(missing)} missing")
    copied = any(launch.metrics.get("tma_read_bytes") for launch in profile.launches)
    note = " Copies of blocks by descriptors do not count at the L1." if copied else ""
    return f"Traffic of one call: {'; '.join(parts)}.{note}"


def _products(profile: Profile, floor: Floor | None) -> list[str]:
    """What the matrix units did, where that is known."""
    done, ratio = matrix_work(profile, floor)
    if ratio is None:
        return []
    times = f"{ratio:.3g} times the problem's"
    return [f"Products of one call: {done / 1e9:.4g} GFLOP on the matrix units, {times}."]


def _configurations(profile: Profile) -> list[str]:
    """What the autotuners chose from, in a line."""
    told = []
    for one in profile.configurations[:CONFIGURATIONS]:
        parts = [f"{one.registers} registers"] if one.registers is not None else []
        parts += [f"{one.spill_bytes} bytes spilled"] if one.spill_bytes else []
        parts += [f"{size(one.shared_bytes)} shared"] if one.shared_bytes else []
        time = f"{one.time_ms:.4g} ms" if one.time_ms is not None else "not timed"
        told.append(f"{one_line(_UNSET.sub('', one.config), 200)}: {time} ({', '.join(parts)})")
    more = len(profile.configurations) - len(told)
    left = f"; and {more} slower" if more else ""
    return [f"The autotuner's configurations: {'; '.join(told)}{left}."] if told else []


def _launch(launch: Launch, part: Gpu | None) -> str:
    x, y, z = launch.grid
    grid = " x ".join(str(n) for n in ((x, y, z) if z > 1 else (x, y) if y > 1 else (x,)))
    parts = [f"{grid} programs of {launch.threads} threads"]
    kind = "Launch" if launch.triton else "Library launch"
    name = f"{kind} `{one_line(launch.name, 80)}`"
    if launch.share is not None and launch.share < SMALL_LAUNCH:
        time = f", {launch.duration_us / 1e3:.4g} ms" if launch.duration_us is not None else ""
        return f"{name}: {parts[0]}{time}, {launch.share:.1%} of the call."
    told: list[tuple[float | str | None, str]] = [
        (launch.duration_us, f"{(launch.duration_us or 0) / 1e3:.4g} ms"),
        (launch.share, f"{launch.share or 0:.0%} of the call"),
        (launch.registers, f"{launch.registers} registers a thread"),
        (launch.spill_bytes or None, f"{launch.spill_bytes} bytes a thread spilled"),
        (launch.shared_bytes or None, f"{size(launch.shared_bytes or 0)} of shared memory"),
        (launch.occupancy, f"occupancy {launch.occupancy or 0:.0%}{_limits(launch, part)}"),
        (launch.load_bits, _width("load", launch.load_bits)),
        (launch.store_bits, _width("store", launch.store_bits)),
        (launch.num_stages, f"num_stages {launch.num_stages}"),
        (launch.config, f"the autotuner's choice {launch.config}"),
    ]
    parts += [text for value, text in told if value is not None]
    if launch.matrix_instructions is not None:
        parts.append("matrix units used" if launch.matrix_instructions else "matrix units idle")
    return f"{name}: {', '.join(parts)}."


def _limits(launch: Launch, part: Gpu | None) -> str:
    """How many programs an SM has room for, by what limits them; the limiter's name alone where the
    GPU is not known."""
    if part is None or launch.registers is None:
        return f" (limited by {launch.occupancy_limiter})" if launch.occupancy_limiter else ""
    shared = launch.shared_bytes or 0
    limits = limits_per_sm(part, launch.threads, launch.registers, shared)
    room = sorted((count, name) for name, count in limits.items() if name != "blocks")
    told = ", ".join(f"{count} by {name}" for count, name in room)
    return f" (an SM takes {told})"


def _width(way: str, bits: int | None) -> str:
    """How wide a launch's accesses are; of copies of blocks no thread has a part."""
    return f"widest {way} {bits} bits" if bits else f"every {way} a copy of a block"


def _busy(budget: Budget, launch: Launch) -> str:
    """How busy a launch's units are and what its warps wait for; nothing where neither is known."""
    busiest = sorted(budget.busy, key=lambda unit: -budget.busy[unit])
    told = busiest[:BUSIEST]
    always = {"dram": True, "matrix": bool(launch.matrix_instructions)}
    told += [unit for unit in busiest[BUSIEST:] if always.get(unit)]
    waits = {name: launch.metrics.get(name, 0.0) for name in WAITS}
    nothing = [f"{share:.0%} for {WAITS[n]}" for n, share in waits.items() if share >= WAITED]
    idle = f"; waiting {', '.join(nothing)}" if nothing else ""
    units = ", ".join(f"{UNITS[unit][0]} {budget.busy[unit]:.0%}" for unit in told)
    return f" Busy: {units}{idle}." if units else ""


def finding(question: Situation, item: Finding) -> dict[str, Any]:
    """A finding as its template shows it; lines that its evidence does not quote are quoted."""
    tilde = "~" if question.profile.source == "compiler" else ""
    source = question.parent_source.splitlines()
    quoted = [
        f"line {number}: `{source[number - 1].strip()}`"
        for number in item.lines
        if 0 < number <= len(source)
        and source[number - 1].strip()
        and not any(text.startswith(f"line {number}:") for text in item.evidence)
    ]
    more = len(quoted) - LINES_QUOTED
    return {
        "kind": str(item.kind),
        "gain": _bound(item, tilde),
        "title": one_line(_for_reader(question, item.title)) + ("." if item.seen_as else ""),
        "seen_as": ", ".join(f"`{kind}`" for kind in item.seen_as),
        "evidence": [one_line(_for_reader(question, text)) for text in item.evidence],
        "lines": quoted[:LINES_QUOTED] + ([f"and {more} more lines"] if more > 0 else []),
        "advice": one_line(item.advice, 600),
    }


def _bound(item: Finding, tilde: str) -> str:
    """What fixing it could give, in words."""
    if item.gain_bound < WORTH:
        return "nothing alone: another unit limits as much"
    assumed = f", if {item.assumes}" if item.assumes else ""
    return f"at most {tilde}{item.gain_bound:.3g} times as fast{assumed}"


def direction_note(question: Situation) -> str:
    """Where the direction stands among the findings, and whether its first plan is taken."""
    kinds = [str(item.kind) for item in question.findings]
    direction = question.direction
    note = f", finding {kinds.index(direction.finding) + 1}" if direction.finding in kinds else ""
    if direction.again:
        note += "; this plan was carried out once and its code failed, write it anew"
    elif direction.plan == 1:
        note += "; the plan that first comes to mind is taken, find another"
    elif direction.plan > 1:
        note += f"; the {direction.plan} plans that first come to mind are taken, find another"
    return note


def profiled(profile: Profile | None, floor: Floor | None) -> list[str]:
    """Traffic and launches, a line each."""
    if profile is None:
        return []
    case = make_case(profile, floor, None)
    pairs = zip(profile.launches, case.budgets, strict=True)
    shown = sorted(pairs, key=lambda pair: -(pair[0].share or 0))[:LAUNCHES]
    lines = [_traffic(profile, floor), *_products(profile, floor)]
    part = _part(profile.gpu)
    for launch, budget in shown:
        is_small = launch.share is not None and launch.share < SMALL_LAUNCH
        busy = "" if is_small or not case.measured else _busy(budget, launch)
        lines.append(_launch(launch, part) + busy)
    told = list({fact: None for launch, _ in shown for fact in launch.lowering})
    if told:
        more = f" And {len(told) - LOWERED} facts more" if len(told) > LOWERED else ""
        lines.append(f"The compiler made of it: {'. '.join(told[:LOWERED])}.{more}")
    if len(profile.launches) > LAUNCHES:
        lines.append(f"{len(profile.launches) - LAUNCHES} smaller launches besides.")
    return lines + _configurations(profile)


def _for_reader(question: Situation, text: str) -> str:
    """The text with the code of lines in the place of their numbers, for one who is not shown
    these; not where the code stands behind the number."""
    if isinstance(question, DiagnosisQuestion):
        return text
    code = question.parent_source.splitlines()

    def quoted(match: re.Match[str]) -> str:
        numbers = [int(number) for number in re.findall(r"\d+", match[0])]
        if not all(0 < number <= len(code) for number in numbers):
            return match[0]
        texts = [f"`{one_line(code[number - 1], CODE_CHARACTERS)}`" for number in numbers]
        return (" to " if " to " in match[0] else ", ").join(dict.fromkeys(texts))

    lines = r"\blines? \d+(?:(?:, | to )\d+)*\b"
    behind = any(len(line.strip()) >= SHORTEST_QUOTE and line.strip() in text for line in code)
    return text if behind else re.sub(lines, quoted, text)


def size(count: float) -> str:
    """Bytes in decimal units."""
    for unit, scale in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= scale:
            return f"{count / scale:.4g} {unit}"
    return f"{count:.0f} bytes"


def shape(sizes: tuple[int, ...]) -> str:
    """A shape as `(16, 32)`."""
    return f"({', '.join(str(n) for n in sizes)}{',' if len(sizes) == 1 else ''})"


def one_line(text: str, most: int = REASON_CHARACTERS) -> str:
    """The text on one line, cut to its first `most` characters."""
    text = re.sub(r"\s+", " ", text).strip()
    return text if len(text) <= most else text[: most - 1] + "…"


def tilde(time: Measurement) -> str:
    """`~` before a modelled time."""
    return "~" if time.source == "modelled" else ""
