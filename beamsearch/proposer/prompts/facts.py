"""What is known of a situation, in the words a prompt uses.

A modelled number carries `~` and is called modelled; what is missing is said to be missing.
"""

from __future__ import annotations

import re
from typing import Any

from beamsearch.proposer.prompts.profiled import part_of, profiled
from beamsearch.proposer.prompts.wording import one_line, size, tilde
from beamsearch.proposer.questions import DiagnosisQuestion, FirstQuestion, Question, Situation
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import error_in_words
from kernel_profiling.findings.findings import WORTH
from kernel_profiling.profile import Costs, Finding, Floor, Profile

CODE_CHARACTERS = 60
"""Of a line of code that stands for its number."""
SHORTEST_QUOTE = 12
"""Characters of a line of code that a text holds only where it quotes it."""
LINES_QUOTED = 4
HALF = ("float16", "bfloat16")
RULES = 3
LEAST_RULE = 1.0
"""Percent of the call that a rule estimates at least."""
RULE_CHARACTERS = 320
NO_HELP = ("Low Compression Rate", "PM Sampling Data", "Theoretical Occupancy")
"""Rules of Nsight Compute that no change of a kernel's source answers."""


def gpu(name: str, dtype: str) -> str:
    """The GPU in a sentence, from the datasheet where the part is known."""
    part = part_of(name)
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
    return "1%" if dtype in HALF else "0.1%"


def spread_share(dtype: str) -> str:
    """The most of the output's standard deviation that this may be, in words."""
    return "5%" if dtype in HALF else "0.5%"


def capability(name: str) -> float | None:
    """Compute capability of the GPU, as 9.0; None where the part is not known."""
    part = part_of(name)
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
    if question.parent_error is not None:
        measured = question.profile.source == "ncu"
        error = error_in_words(question.parent_error, measured=measured)
        lines.append(f"Error on the problem's own inputs: {error}.")
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
