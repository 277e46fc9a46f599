"""The landscape is what the records say, and searching it is repeatable and bounded."""

import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import pytest

from beamsearch.records.candidate import Direction
from tools.fit_landscape import held_against, of_the_playbook, runs_of_models
from tools.simulation.chart import chart
from tools.simulation.compare import PATIENCES, WORLDS, compare, world_of
from tools.simulation.fit import fit, read_run
from tools.simulation.landscape import MODELS, PLAYBOOK, Ground, fitted
from tools.simulation.trial import COMPARED, search

ROOT = Path(__file__).resolve().parent.parent.parent


def test_the_landscapes_are_fitted_to_what_is_recorded():
    again = "python tools/fit_landscape.py fits it again"
    assert of_the_playbook() == fitted(PLAYBOOK), again
    runs = runs_of_models()
    assert fit(runs, []) == fitted(MODELS), again
    for line in held_against(runs, fitted(MODELS))[:2]:
        measured, searched = map(float, re.findall(r"\d\.\d{3}", line))
        assert searched == pytest.approx(measured, rel=0.05), line
    assert fitted(PLAYBOOK).steps >= 100 and fitted(PLAYBOOK).variants >= 100
    assert fitted(MODELS).steps >= 300 and len(fitted(MODELS).starts) >= 15


def test_what_later_changes_of_models_give_is_counted_from_their_own():
    run = read_run(ROOT / "artifacts" / "claude" / "43_Max_Pooling_3D")
    later = [step for step in run.steps if not step.same and not step.first]
    gains = [step.after / step.before for step in later if step.after < step.before]
    assert len(later) > 10 and gains
    assert not Counter(round(gain, 4) for gain in gains) - Counter(fitted(MODELS).shares)
    alone = fit([run], [])
    assert alone.later_gains == (len(gains) + 1) / (len(later) + 2)
    assert len(alone.shares) > len(gains), "so few that what first changes did is counted too"


@pytest.mark.parametrize("strategy", sorted(COMPARED))
def test_a_search_repeats_and_stays_above_the_floor_and_its_family(strategy):
    landscape = world_of("failing code")
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
    landscape = fitted(PLAYBOOK).model_copy(
        update={"first_plans": 0.5, "follows": 1.0, "failures": 0.5}
    )
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
    curves = compare(4)
    assert [(c.world, c.strategy) for c in curves] == [(w, s) for w in WORLDS for s in COMPARED]
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
    for name in (*WORLDS, *COMPARED):
        assert name in done.stdout
