"""When two times differ."""

NOISE = 0.01
"""Relative difference below which two times are a tie: ten timings of one kernel on an H200 spread
by up to 1% (median against median)."""


def is_win(time: float, best_time: float) -> bool:
    """Whether a time beats the best by more than the noise."""
    return time < best_time * (1 - NOISE)


def is_tie(time: float, other: float) -> bool:
    """Whether neither of two times beats the other."""
    return not is_win(time, other) and not is_win(other, time)
