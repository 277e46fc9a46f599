"""The floor counts what has to be moved, and nothing else."""

import pytest

from beamsearch import floor as floors
from beamsearch.floor import measure_floor
from beamsearch.problem import find_problem, least_work
from profiling.profile import GivesAway


@pytest.mark.parametrize("true_shapes", [True, False])
def test_what_no_output_depends_on_is_not_among_the_least_bytes(monkeypatch, true_shapes):
    problem = find_problem("43")
    unused = GivesAway(unused={"x": 0.25}, draws=9, true_shapes=true_shapes)
    monkeypatch.setattr(floors, "gives_away", lambda *_: unused)
    work = least_work(problem)
    x = 16 * 32 * 128**3 * 2
    assert work.read == {"x": x}
    floor = measure_floor(problem, "h200", None)
    # Edges weigh more at shrunk shapes: what was seen there says nothing of the true ones
    assert floor.least_bytes == work.least_bytes - (x // 4 if true_shapes else 0)


def test_parameters_are_counted_by_name():
    work = least_work(find_problem("82"))
    assert work.bytes_read == sum(work.read.values()) and len(work.read) == 2
