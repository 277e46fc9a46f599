"""Why a run's number may be believed, and how far, in words."""

from __future__ import annotations

from collections import defaultdict
from textwrap import shorten

from beamsearch.records.amounts import amount
from beamsearch.records.baselines import BASELINES, called
from beamsearch.records.measurement import Measurement
from beamsearch.records.run import WINNER, Confirmation
from beamsearch.records.verdict import Verdict, error_in_words
from beamsearch.report.numbers import of_floor, short_id
from beamsearch.report.run_data import INPUT, RunData
from beamsearch.report.words import spread, timed
from beamsearch.search.pairs import paired

INPUT_SETS = {
    "own": "values as the problem draws them",
    "normal": "standard normal values",
    "outliers": "normal, but for a few values a hundred to thousands of times as large",
    "rising": "normal around a line that climbs along every dimension",
    "infinite": "normal, with infinities of both signs among them, so that some windows hold no "
    "number",
    "large": "normal times 1024 (64 in float16)",
    "minus_infinite": "normal, with a run of negative infinities in each row",
    "far_below": "each image or row somewhere between -1000 and -150, where exponentials are zero",
    "ties": "whole numbers from -2 to 2, so that many are equal",
    "huge": "normal times a million (8192 in float16)",
    "tiny": "normal divided by 1024",
    "denormal": "normal, a quarter of them too small for a normal number of their type",
    "not_a_number": "normal, a few of them no numbers",
}
"""What is said of the sets of inputs that a check names."""

FEW_CARDS = 3
"""So many are named."""
NAME = 90
"""Letters of a baseline's kernel: names of templates run on for hundreds."""


def _counted(verdict: Verdict) -> tuple[int, int, int]:
    """Checks that passed, all of them but those that failed and decide nothing, and those."""
    told = sum(check.reported and not check.passed for check in verdict.checks)
    return sum(check.passed for check in verdict.checks), len(verdict.checks) - told, told


def passed(verdict: Verdict) -> str:
    """`34 of 34 checks passed`; beside them, of how many others is told that they did not, which
    decide nothing."""
    count, of, told = _counted(verdict)
    others = f" ({told} more are only told of, and decide nothing)" if told else ""
    return f"{count} of {amount(of, 'check')} passed{others}"


def checks(run: RunData) -> str:
    """How many of the winner's checks passed, and what the last look at it added."""
    last, first = run.examination, run.winner.verdict
    if len(last.checks) <= len(first.checks):
        return passed(last)
    counts = [f"{own} of {of}" for own, of, _ in map(_counted, (first, last))]
    return (
        f"{counts[0]} checks passed in its round, {counts[1]} in the final examination, which "
        "makes them again and others"
    )


def verified(run: RunData) -> list[str]:
    """What was looked at before the winner was believed, a line a stage."""
    verdict = run.examination
    stages: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for check in verdict.checks:
        failed = "told, decides nothing: " if check.reported else "FAILED: "
        failed = "" if check.passed else failed
        stages[str(check.stage)][failed + check.message].append(check.name)
    told = []
    for stage, messages in stages.items():
        parts = [
            f"{', '.join(names)}{f' ({message})' if message else ''}"
            for message, names in messages.items()
        ]
        told.append(f"{stage.replace('_', ' ')}: {'; '.join(parts)}")
    only_told = any(check.reported and not check.passed for check in verdict.checks)
    all_made = f"no {'other ' if only_told else ''}check of this judge was left out"
    left_out = [f"not checked: {text}" for text in verdict.not_checked]
    return told + (left_out or [all_made])


def input_sets(run: RunData) -> list[tuple[str, str]]:
    """The sets of inputs that the winner's checks name, and what they hold."""
    seen = {check.name.split(" #")[0] for check in run.examination.checks}
    return [(name, told) for name, told in INPUT_SETS.items() if name in seen]


def timed_how(run: RunData) -> list[str]:
    """What a measured time is the time of; nothing where times are modelled."""
    confirmed = run.record.confirmation
    time = confirmed.winner if confirmed else run.winner.measurement
    if time is None or time.source == "modelled":
        return []
    way = ", by its CUDA graph" if time.graph else ", launched from Python behind other work"
    way = "" if time.graph is None else way  # old records do not say
    told = (
        f"A time is the median of single calls{way}, between two events on the GPU. The L2 is "
        "emptied and every input has new values before each call; the results of some of these "
        "calls, drawn at random, are compared too."
    )
    first = confirmed.input if confirmed else run.candidates[INPUT].measurement
    known = [(run.winner.name, time), ("the input kernel", first)]
    python = [f"{n} {m.host_us:.0f} us" for n, m in known if m is not None and m.host_us]
    if python:
        told += (
            f" Python's own part of a plain call is not in it: {', '.join(python)}. Where that is "
            "longer than the time, calls without a graph take as long as Python does."
        )
    return [told]


def belief(run: RunData) -> list[str]:
    """Why the number may be believed, and how far."""
    confirmed, told = run.record.confirmation, timed_how(run)
    if confirmed is not None:
        calls = amount(confirmed.winner.count or 0, "call")
        told.append(
            "At the end the winner was timed again, taking turns with the baselines in one visit "
            f"to one GPU: {spread(confirmed.winner)} over {calls}. Speedups at the top are of this "
            "visit."
        )
        told += _spread_of_calls(run, confirmed)
        told += _in_its_round(run, confirmed.winner, confirmed.input)
    elif run.modelled:
        told.append(
            "Nothing was measured: times come from a model of the GPU and carry ~. A difference "
            f"under {run.noise:.0%} is a tie, and none of them is evidence of a speedup."
        )
    else:
        told.append(
            "The run has not come to its end: the winner was not timed beside the baselines yet."
        )
        known = [(name, getattr(run.record.baselines, name)) for name in BASELINES]
        times = [f"{called(name)} {spread(time)}" for name, time in known if time is not None]
        told += [f"As the run began, the baselines took: {', '.join(times)}."] if times else []
    told += [*errors(run.examination, measured=not run.modelled), *_compared_with(run)]
    told += timed_twice(run)
    ties = tied(run)
    told.append(
        f"Within the noise of {run.noise:.0%}, by which times of one kernel may differ, these are "
        f"as fast as the winner: {', '.join(ties)}."
        if ties
        else f"No other kernel is within the noise of {run.noise:.0%} of the winner."
    )
    if run.record.floor is not None and run.record.floor.corrected:
        told.append(f"The floor was corrected: {run.record.floor.corrected}.")
    return told


def timed_twice(run: RunData) -> list[str]:
    """By how much the two timings of one kernel differ, where kernels were timed twice."""
    differences = {}
    for name in run.in_turns:
        own = run.candidates[name].measurement
        if own is not None and own.visit is not None:
            alone = own.time_ms / run.trace.input_time_ms(own.visit)
            differences[name] = max(alone, run.times[name]) / min(alone, run.times[name]) - 1
    if not differences:
        return []
    name = max(differences, key=differences.__getitem__)
    most = differences[name]
    told = [
        "A kernel is timed as it is judged, and what seems to win once more, in turns with the "
        f"best before it. The two differ by up to {most:.1%} here ({name}), as "
        "ratios to the input kernel: between kernels timed once, less than that says little."
    ]
    mark, known = run.times[run.winner.name], {run.winner.name, *run.in_turns}
    near = [n for n, t in run.times.items() if run.noise < t / mark - 1 <= most and n not in known]
    if near:
        told.append(
            f"Timed once, and slower than the winner by no more than that: {', '.join(near)}. They "
            "may be as fast."
        )
    return told


def _compared_with(run: RunData) -> list[str]:
    """What the baselines and the input kernel are."""
    dtype = run.record.settings.dtype or run.record.problem_dtype
    told = [
        f"The baselines are the reference in {dtype}, on the inputs that the kernels get, in the "
        "layout that the problem has and with PyTorch's defaults: eager lets cuDNN choose its "
        "algorithm without trying them (cudnn.benchmark is off)."
    ]
    if dtype == "float32":
        rule = (
            "TF32 is off for baselines and kernels alike"
            if run.record.settings.precision == "strict"
            else "Baselines compute convolutions in TF32 and matrix products in float32, PyTorch's "
            "default, and a kernel's products may be as imprecise as theirs"
        )
        told.append(f"{rule}; the results that both are held against are computed without TF32.")
    author = run.candidates[INPUT].author
    if author != "input":
        told.append(
            f"The input kernel is a first draft by {author}: a speedup over it says little."
        )
    return told


def errors(verdict: Verdict, *, measured: bool) -> list[str]:
    """How far the results are off, where the verdict says, and what they may be."""
    rule = (
        "the judge allows 1% of the output's standard deviation in half types and 0.1% in float32, "
        "of all errors together (rms), and no element more than five times that, against results "
        "in a higher precision"
    )
    if verdict.rms_error is None:
        return [f"How far its results are off was not recorded: {rule}."]
    seen = error_in_words(verdict.rms_error, measured=measured)
    return [f"On the problem's own inputs its errors are {seen}; {rule}."]


def _spread_of_calls(run: RunData, confirmed: Confirmation) -> list[str]:
    """Whether a fifth of the winner's calls are slower than the noise lets expect, and how much its
    speedups differ from turn to turn."""
    time, told = confirmed.winner, []
    if time.p80_ms is not None and time.p80_ms > time.time_ms * (1 + 2 * run.noise):
        more = time.p80_ms / time.time_ms - 1
        told.append(
            f"A fifth of these calls took {more:.0%} longer than the median, or more. The noise of "
            f"{run.noise:.0%} is that of medians: by how much those of the same kernel differ from "
            "one timing to the next. Why single calls are slower is not known: clocks that give "
            "way to the limit of power are the usual reason, and meet each kernel in its turns."
        )
    if turns := confirmed.turns:
        known = [n for n in ("input", *BASELINES) if len(turns.get(n, [])) == len(turns[WINNER])]
        ratios = [(called(n), paired(turns[n], turns[WINNER])) for n in known]
        ranges = [f"{n} {r.median:.3f}x ({r.low:.3f} to {r.high:.3f})" for n, r in ratios]
        told.append(
            f"Times over the winner's, turn by turn, {amount(len(turns[WINNER]), 'turn')} each: "
            f"{', '.join(ranges)}; in brackets the range with 95% confidence."
        )
    return told


def baseline_kernels(run: RunData) -> list[str]:
    """What the baselines run on the GPU, where the run looked; and where not, that a compiled one
    is slower than eager for a reason that the run does not know."""
    confirmed = run.record.confirmation
    if confirmed is None:
        return []
    told = []
    for name, kernels in confirmed.baselines.kernels.items():
        parts = [
            f"{shorten(k.name, NAME, placeholder='…')}{f' ({k.count} times)' * (k.count > 1)} "
            f"{k.ms:.3g} ms"
            for k in kernels
        ]
        told.append(f"{called(name)} runs: {'; '.join(parts)}.")
    eager, compiled = confirmed.baselines.eager, confirmed.baselines.compile
    if not told and eager and compiled and compiled.time_ms > 1.1 * eager.time_ms:
        told.append(
            f"torch.compile is {compiled.time_ms / eager.time_ms:.2f}x slower than eager here. "
            "Which kernels it runs was not recorded by this run, so that the page cannot say why."
        )
    return told


def _in_its_round(run: RunData, time: Measurement, its_input: Measurement) -> list[str]:
    """The winner's time in its round beside its last one, where that was another visit."""
    own = run.ranked_time(run.winner)
    if own is None or own.visit == time.visit:
        return []
    told = f"In its round it took {timed(run, run.winner)}. That was another visit"
    if own.gpu_uuid != time.gpu_uuid:
        cards = [short_id(m.gpu_uuid) for m in (own, time)]
        told += f" to another GPU ({cards[0]} then, {cards[1]} now)"
    told += ", so the two times are not compared"
    if then := run.times.get(run.winner.name):
        now = its_input.time_ms / time.time_ms
        told += f"; over the input kernel {1 / then:.3f}x then, {now:.3f}x now"
    multiples = [of_floor(m, run.record) for m in (own, time)]
    if multiples[0] is not None and multiples[1] is not None:
        told += f"; {multiples[0]:.2f} times the floor then, {multiples[1]:.2f} times now"
    return [f"{told}."]


def tied(run: RunData) -> list[str]:
    """Names of other kernels whose time differs from the winner's by no more than the noise."""
    names = []
    for name, candidate in run.candidates.items():
        change = run.against(candidate, run.winner.name)
        if name != run.winner.name and change is not None and change.word == "tie":
            names.append(name)
    return names


def floor(run: RunData) -> str:
    """What the floor is: a rate that one card was seen to reach, or the datasheet's."""
    found = run.record.floor
    assert found is not None
    told = (
        f"{run.about}{found.time_ms:.4g} ms: the least bytes, {found.least_bytes / 1e9:.3f} GB, at "
        f"{found.bandwidth_gb_s:.0f} GB/s"
    )
    if found.flops:
        moved_ms = found.least_bytes / found.bandwidth_gb_s / 1e6
        done_ms = found.flops / found.flops_rate_tflop_s / 1e9
        longer = "the arithmetic, which takes" if done_ms > moved_ms else "the bytes, which take"
        told += (
            f", or the least arithmetic, {found.flops / 1e9:.1f} GFLOP at "
            f"{found.flops_rate_tflop_s:.0f} TFLOP/s: {longer} longer"
        )
    if found.products == "tf32" and run.record.problem_dtype == "float32":
        told += "; products may be in TF32, as the reference's convolutions are"
    if found.bandwidth_source == "datasheet":
        return f"{told}. Rates are the datasheet's, which nothing reaches."
    card = run.floor_card
    return (
        f"{told}. Rates were measured on one card of this model{f' ({card})' if card else ''}, by "
        f"streaming{' and a large torch.mm of random numbers' if found.flops else ''}; other cards "
        "and other visits differ by a percent or two, so that a time within 2% is at the floor."
        f"{beyond(run)}"
    )


def beyond(run: RunData) -> str:
    """Which kernel's matrix units did more a second than the floor's rate, where that is known to
    be in the same format."""
    found = run.record.floor
    if found is None or not found.flops or found.products != run.record.problem_dtype:
        return ""
    rates: dict[tuple[str, str], float] = {}
    for name in run.times:
        profile = run.profile(name)
        for launch in profile.launches if profile else []:
            done, seconds = launch.metrics.get("matrix_flops"), launch.duration_us
            if done and seconds:
                rates[name, launch.name] = done / seconds / 1e6
    fastest = max(rates, key=rates.__getitem__, default=("", ""))
    if rates.get(fastest, 0.0) <= 1.01 * found.flops_rate_tflop_s:
        return ""
    return (
        f" It is no limit: the matrix units did {rates[fastest]:.0f} TFLOP/s in {fastest[1]} of "
        f"{fastest[0]}, products with zeros and others that the problem does not need among them, "
        "so more than the distance to the floor may be left."
    )


def machine(run: RunData) -> str:
    """The GPU and how many of it worked on the run."""
    where = run.record.environment
    if where.gpu is None:
        return f"no GPU, compiled for {where.target}"
    if not where.gpus:
        return where.gpu
    count = amount(len(where.gpus), "card")
    cards = ", ".join(map(short_id, where.gpus))
    named = f" ({cards})" if len(where.gpus) <= FEW_CARDS else ""
    return f"{where.gpu}, {count} of this model worked on the run{named}"


def state(run: RunData) -> str:
    """How the run ended; a multiple of the floor that it names is that of the winner's round."""
    record = run.record
    told = f"{record.status}: {record.stop_reason}" if record.stop_reason else record.status
    if record.confirmation is None or "of the floor" not in (record.stop_reason or ""):
        return told
    now = f"{of_floor(record.confirmation.winner, record):.2f} times"
    return told if now in told else f"{told}, by its round's time; {now} by the final one"
