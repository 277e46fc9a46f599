"""The landscape is what the records say, and searching it is repeatable and bounded."""

import json
import math
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest

from beamsearch.records.candidate import Direction
from beamsearch.search import STRATEGIES
from tools.simulation.chart import chart
from tools.simulation.compare import PATIENCES, WORLDS, compare
from tools.simulation.fit import fit, read_run
from tools.simulation.landscape import Ground, fitted
from tools.simulation.trial import search

ROOT = Path(__file__).resolve().parent.parent.parent
RECORDED = (
    "04_Matrix_vector_multiplication",
    "36_RMSNorm",
    "43_Max_Pooling_3D",
    "77_conv_transposed_3D_square_input_square_kernel___padded____dilated____strided__",
    "82_conv_depthwise_2D_square_input_square_kernel",
)


def test_the_landscape_is_fitted_to_what_is_recorded():
    runs = [read_run(ROOT / "artifacts" / "playbook" / name) for name in RECORDED]
    table = json.loads((ROOT / "tests" / "data" / "h200_variants.json").read_text())
    landscape = fit(runs, table["variants"])
    assert landscape == fitted(), "python tools/fit_landscape.py fits it again"
    assert landscape.steps >= 100 and landscape.variants >= 100


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_a_search_repeats_and_stays_above_the_floor_and_its_family(strategy):
    landscape = fitted().model_copy(update=WORLDS["richer, failing"])
    start = landscape.starts[2]
    one, other = (search(Ground(landscape, start, 3), strategy, 3) for _ in range(2))
    assert one.rounds == other.rounds
    assert one.rounds != search(Ground(landscape, start, 4), strategy, 4).rounds
    best: dict[str, float] = {}
    for spot in one.spots.values():
        assert spot.time >= math.exp(spot.distance) >= 1
        assert best.setdefault(spot.family, spot.distance) == spot.distance
    bests = [one.best(n) for n in range(9)]
    assert bests == sorted(bests, reverse=True)
    assert len({len(record.candidates) for record in one.rounds[1:]}) == 1


def test_a_plan_tried_again_keeps_its_idea_and_gets_new_code():
    landscape = fitted().model_copy(update={"first_plans": 0.5, "follows": 1.0, "failures": 0.5})
    changed = fates = 0
    for seed in range(200):
        ground = Ground(landscape, landscape.starts[2], seed)
        direction = Direction(finding="latency_not_hidden")
        once = ground.child(ground.first, direction, 0)
        again = ground.child(ground.first, direction.model_copy(update={"again": True}), 0)
        fates += (once is None) != (again is None)
        if once and again:
            changed += once.generation != again.generation
    assert changed == 0
    assert fates > 50


def test_more_patience_costs_more_and_loses_less():
    curves = compare(fitted(), 4)
    assert [(c.world, c.strategy) for c in curves] == [(w, s) for w in WORLDS for s in STRATEGIES]
    for curve in curves:
        used, lost = zip(*(curve.patience[n] for n in PATIENCES), strict=True)
        assert list(used) == sorted(used)
        assert list(lost) == sorted(lost, reverse=True)
        assert curve.after(8) == curve.best[1] and curve.after(64) == curve.best[8]
    drawn = ElementTree.fromstring(chart(curves))
    lines = drawn.iter("{http://www.w3.org/2000/svg}polyline")
    assert len(list(lines)) == len(curves)


def test_one_command_prints_the_table():
    command = [sys.executable, "-m", "tools.simulation", "--seeds", "2"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr
    for name in (*WORLDS, *STRATEGIES):
        assert name in done.stdout
