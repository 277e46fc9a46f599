"""Progress as numbers a person asks for, derived from records and never stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.records.baselines import BASELINES, called

if TYPE_CHECKING:
    from beamsearch.records.measurement import Measurement
    from beamsearch.records.run import RunRecord
    from kernel_profiling.profile import Floor


UNCHANGED = (["num_ctas", "1"], ["maxnreg", "None"])
"""Parts of a configuration that say nothing: Triton's own defaults."""


def ratio(slow: Measurement | None, fast: Measurement | None) -> float | None:
    """How many times faster `fast` is; None where the two may not be compared.

    Measured and modelled times are never compared, nor are times of two visits.
    """
    if slow is None or fast is None or slow.source != fast.source:
        return None
    if (slow.visit, slow.gpu_uuid, slow.gpu) != (fast.visit, fast.gpu_uuid, fast.gpu):
        return None
    return slow.time_ms / fast.time_ms


@dataclass(frozen=True)
class Progress:
    """How far a run has come."""

    best: str | None
    time: Measurement | None
    over_input: float | None
    over: dict[str, float]
    """Speedup over each baseline that can be compared: eager, compile, max_autotune."""
    of_floor: float | None
    """The best time as a multiple of the floor."""


def progress(run: RunRecord) -> Progress:
    """Progress of a run: its confirmation where it has one, else its last round.

    Baselines and the best kernel may come from different visits, so the speedup over a baseline is
    the product of two ratios, each taken within one visit: baseline to input, input to best.
    """
    last = run.rounds[-1] if run.rounds else None
    time, over_input, baselines = None, None, run.baselines
    over: dict[str, float] = {}
    if run.confirmation is not None:
        time, baselines = run.confirmation.winner, run.confirmation.baselines
        over_input = ratio(run.confirmation.input, time)
        direct = {name: ratio(getattr(baselines, name), time) for name in BASELINES}
        over = {name: value for name, value in direct.items() if value is not None}
    elif last is not None:
        time, over_input = last.best_time, last.speedup
    if over_input is not None:
        for name in BASELINES:
            to_input = ratio(getattr(baselines, name), baselines.anchor)
            if to_input is not None:
                over.setdefault(name, to_input * over_input)
    best = run.best or (last.best if last else None)
    return Progress(best, time, over_input, over, of_floor(time, run))


def of_floor(time: Measurement | None, run: RunRecord) -> float | None:
    """A time as a multiple of the run's floor."""
    if time is None or run.floor is None or run.floor.time_ms <= 0:
        return None
    return time.time_ms / run.floor.time_ms


def sign(time: Measurement | None) -> str:
    """`~` before a number that rests on a modelled time."""
    return "~" if time is not None and time.source == "modelled" else ""


def plus_minus(time: Measurement) -> str:
    """` ±0.3%`: half of the range from the 20th to the 80th percentile of the timed calls."""
    if time.p20_ms is None or time.p80_ms is None or not time.time_ms:
        return ""
    return f" ±{(time.p80_ms - time.p20_ms) / 2 / time.time_ms:.1%}"


def configuration(time: Measurement | None) -> str:
    """`  [BLOCK 128, num_warps 4]`: what a kernel's autotuner chose, but for what it left alone."""
    told = []
    for function, words in (time.configs if time else {}).items():
        parts = [part.strip().split(": ") for part in words.split(",")]
        own = [" ".join(part) for part in parts if part not in UNCHANGED]
        several = f"{function}: " if time and len(time.configs) > 1 else ""
        told.append(f"{several}{', '.join(own)}")
    return f"  [{'; '.join(told)}]" if told else ""


def tell(now: Progress) -> str:
    """Progress in one line: `r2-w1-v0 ~0.78 ms, ~3.71x over input, ~1.50x the floor`."""
    if now.best is None or now.time is None:
        return "nothing correct yet"
    parts = [f"{now.best} {now.time}", *speedups(now)]
    if now.of_floor is not None:
        parts.append(f"{sign(now.time)}{now.of_floor:.2f}x the floor")
    return ", ".join(parts)


def speedups(now: Progress) -> list[str]:
    """Over the input kernel and each baseline, as far as they are known."""
    told = []
    if now.over_input is not None:
        told.append(over(now.over_input, "input", sign(now.time)))
    return told + [over(now.over[name], called(name)) for name in BASELINES if name in now.over]


def over(speedup: float, other: str, about: str = "") -> str:
    """`1.36x over eager`, `1.46x slower than eager`. `about`: the sign of a modelled number."""
    if round(speedup, 2) >= 1:
        return f"{about}{speedup:.2f}x over {other}"
    return f"{about}{1 / speedup:.2f}x slower than {other}"


def clock(seconds: float) -> str:
    """`1:05` or `1:02:03`."""
    minutes, rest = divmod(round(max(0.0, seconds)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def short_id(uuid: str | None) -> str:
    """`175924f2` of a GPU's UUID: enough to tell the cards of a run apart."""
    return (uuid or "").partition("-")[2][:8] or "unknown"


def of_products(floor: Floor) -> str:
    """` in tf32`: the format whose rate the FLOPs are counted at."""
    return f" in {floor.products}" if floor.flops and floor.products else ""
