"""The floor counts what has to be moved, and nothing else."""

import pytest

from beamsearch.baselines import floor as floors
from beamsearch.baselines.floor import measure_floor
from beamsearch.gpu.machine import modelled
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import find_problem, read_problem
from beamsearch.proposer.prompts.problem_card import make_card
from kernel_profiling.profile import GivesAway
from tests import ROOT


@pytest.mark.parametrize("true_shapes", [True, False])
def test_what_no_output_depends_on_is_not_among_the_least_bytes(monkeypatch, true_shapes):
    problem = find_problem("43")
    unused = GivesAway(unused={"x": 0.25}, draws=9, true_shapes=true_shapes)
    monkeypatch.setattr(floors, "gives_away", lambda *_: unused)
    work = least_work(problem)
    x = 16 * 32 * 128**3 * 2
    assert work.read == {"x": x}
    floor = measure_floor(problem, modelled())
    # Edges weigh more at shrunk shapes: what was seen there says nothing of the true ones
    assert floor.least_bytes == work.least_bytes - (x // 4 if true_shapes else 0)


def test_parameters_are_counted_by_name():
    work = least_work(find_problem("82"))
    assert work.bytes_read == sum(work.read.values()) and len(work.read) == 2


CONV = ROOT / "tests/judge/suite/problems/conv_float32/problem.py"
MATMUL = CONV.parents[1] / "matmul_float32/problem.py"


@pytest.mark.parametrize(
    ("path", "precision", "products", "rate"),
    [
        (CONV, "reference", "tf32", 494.7),
        (CONV, "strict", "float32", 494.7 / 3),  # three TF32 products keep float32
        (MATMUL, "reference", "float32", 494.7 / 3),
        (MATMUL, "strict", "float32", 494.7 / 3),
    ],
)
def test_flops_count_in_the_cheapest_format_that_is_allowed(path, precision, products, rate):
    problem = read_problem(path).with_precision(precision)
    floor = measure_floor(problem, modelled())
    assert (floor.products, floor.flops) == (products, least_work(problem).flops)
    assert floor.compute_ms == pytest.approx(floor.flops / rate / 1e9)
    assert make_card(problem, "2", "3").products == products
