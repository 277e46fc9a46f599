"""How different plans and kernels are: what tells whether a round tried one idea or several."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from itertools import combinations
from statistics import fmean

from beamsearch.problem.kernel import shared_lines


def plans_apart(one: str, other: str) -> float:
    """0 for two texts of the same words, 1 for texts that share none: one minus the words that both
    have over those that either has (Jaccard), of three letters or more, whatever their case."""
    words = [set(re.findall(r"[a-z_]{3,}", text.lower())) for text in (one, other)]
    either = words[0] | words[1]
    return 1 - len(words[0] & words[1]) / len(either) if either else 0.0


def kernels_apart(one: str, other: str) -> float:
    """0 for two sources of the same lines, 1 for sources that share none, in order."""
    return 1 - shared_lines(one, other)


def spread(texts: Sequence[str], apart: Callable[[str, str], float]) -> float | None:
    """The mean difference of every two; None of fewer than two."""
    pairs = [apart(one, other) for one, other in combinations(texts, 2)]
    return fmean(pairs) if pairs else None
