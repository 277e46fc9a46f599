"""How much of an output must be left unwritten, by what some programs stored."""

import pytest

from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.verification.true_shapes import check_trace
from kernel_profiling.estimate.coverage import moved_by
from kernel_profiling.estimate.traffic import AccessTrace, LaunchTrace, OutputUse
from kernel_profiling.profile import AccessKind

OUTPUT, BLOCK = 7, 2048
ROW = 255
"""Programs of a row, the last of which has next to nothing to store."""


def traced(rows: int, wanted: int) -> AccessTrace:
    """Of a launch over so many rows, 64 programs that stand for it, one of them the last of its
    row; and an output of `wanted` rows."""
    stored: list[dict[tuple[int, AccessKind], float]] = [{(OUTPUT, "store"): BLOCK}] * 63
    moved = moved_by([*stored, {(OUTPUT, "store"): 8}], rows * ROW)
    launch = LaunchTrace(name="kernel", grid=(ROW, rows, 1), moved=moved)
    size = wanted * ((ROW - 1) * BLOCK + 8)
    return AccessTrace(
        launches=[launch], outputs=[OutputUse(storage=OUTPUT, bytes=size, filled=False)]
    )


def test_an_eighth_left_unwritten_is_seen_where_programs_differ() -> None:
    with pytest.raises(Rejected, match=r"0\.86 of its bytes"):
        check_trace(traced(896, 1024), 1, Log())


def test_an_output_stored_in_full_passes_where_programs_differ() -> None:
    log = Log()
    check_trace(traced(1024, 1024), 1, log)
    assert [check.passed for check in log.checks] == [True]
