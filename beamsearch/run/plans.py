"""The plans of a run: what they expected, how different they are, and what is tried beside them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from beamsearch.proposer.questions import Diagnosis, Sketch
from beamsearch.records.candidate import Candidate
from beamsearch.records.trace import Trace, read_record
from beamsearch.search.difference import kernels_apart, plans_apart, spread

STRATEGY = "strategy.json"
UNTOLD = 1.1
"""The speedup counted for a sketch that expects none in figures."""


def plans(trace: Trace, number: int) -> dict[int, Diagnosis]:
    """What the workers of a round planned, by worker."""
    paths = sorted(trace.round(number).glob(f"workers/w*/{STRATEGY}"))
    return {int(path.parent.name.removeprefix("w")): read_record(path, Diagnosis) for path in paths}


def differences(
    trace: Trace, number: int, candidates: Sequence[Candidate]
) -> dict[str, float | None]:
    """How different a round's plans are, and the kernels that were written for them."""
    written = [c for c in candidates if c.kernel_file and not (c.repair_of or c.tuned_from)]
    texts = [plan.plan for plan in plans(trace, number).values()]
    return {
        "plans_apart": spread(texts, plans_apart),
        "kernels_apart": spread([trace.kernel_source(c) for c in written], kernels_apart),
    }


def expectations(trace: Trace, rounds: int) -> dict[tuple[int, int | None], float]:
    """The speedups over their parents that the plans of the rounds before `rounds` expected, by
    round and worker."""
    return {
        (number, worker): plan.expected_speedup
        for number in range(1, rounds)
        for worker, plan in plans(trace, number).items()
        if plan.expected_speedup is not None
    }


def other_way(diagnosis: Diagnosis, known: Sequence[str]) -> Sketch | None:
    """The sketch worth most: the gain that it expects (in logarithms) times how different it is
    from the plan and from all that is `known`, from whichever it differs least. None where no
    sketch expects a gain."""

    def worth(sketch: Sketch) -> float:
        gain = math.log(max(1.0, sketch.expected_speedup or UNTOLD))
        return gain * min(plans_apart(sketch.idea, text) for text in (diagnosis.plan, *known))

    best = max(diagnosis.sketches, key=worth, default=None)
    return best if best is not None and worth(best) > 0 else None
