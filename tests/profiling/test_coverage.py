"""Which programs stand for all of a grid."""

import pytest

from kernel_profiling.estimate.coverage import PROGRAMS, spread_programs


@pytest.mark.parametrize("count", [65, 1000, 15745024, 2**31, 3 * 5 * 7 * 11 * 13])
def test_programs_are_of_the_whole_grid_and_in_step_with_no_row(count: int) -> None:
    """Multiples of the golden ratio of 15745024 programs were all the last of rows of eight."""
    programs = spread_programs(count)
    assert programs == spread_programs(count)
    assert len(programs) > PROGRAMS * 0.5 and len(set(programs)) == len(programs)
    for some in (programs, programs[:20]):
        assert min(some) < count / 5 and max(some) > count * 4 / 5
        for row in (2, 3, 8, 62):
            assert len({n % row for n in some}) >= min(row, len(some)) / 2


def test_a_small_grid_is_counted_in_full() -> None:
    assert spread_programs(PROGRAMS) == list(range(PROGRAMS))
