"""Fit the landscapes that strategies are compared on, to recorded runs.

`python tools/fit_landscape.py` writes tools/simulation/playbook.json, of the playbook's runs under
artifacts/ and of variants written by hand, and models.json, of the models' runs there and of those
in tools/kept. It takes no GPU and a few seconds.
"""

from __future__ import annotations

import json
import math
import sys
import tarfile
import tempfile
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tools.simulation.fit import Run
    from tools.simulation.landscape import Landscape

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
ARTIFACTS = ROOT / "artifacts"
VARIANTS = ROOT / "tests" / "data" / "h200_variants.json"
KEPT = ("kernelbench_six.tar.xz", "drawn_eight.tar.xz")
"""Archives of models' runs, by the prompts of today; their problems' text is not needed here."""
SEEDS = 30
"""Searches a problem that runs are held against."""


def main() -> None:
    """Read, fit, write."""
    from beamsearch.records.trace import write_record
    from tools.simulation.fit import fit
    from tools.simulation.landscape import MODELS, PLAYBOOK

    models = runs_of_models()
    landscapes = {PLAYBOOK: of_the_playbook(), MODELS: fit(models, [])}
    for file, landscape in landscapes.items():
        write_record(file, landscape)
        told = landscape.model_dump(
            exclude={"starts", "shares", "losses", "first_slacks", "slacks"}
        )
        print(file.stem, json.dumps(told, indent=1))
    for line in held_against(models, landscapes[MODELS]):
        print(line)


def of_the_playbook() -> Landscape:
    """Of its runs, and of the variants written by hand."""
    from tools.simulation.fit import fit, read_run

    runs = [read_run(path) for path in sorted((ARTIFACTS / "playbook").glob("*/"))]
    return fit(runs, json.loads(VARIANTS.read_text())["variants"])


def runs_of_models() -> list[Run]:
    """Those that came to a first round."""
    from tools.simulation.fit import read_run

    with tempfile.TemporaryDirectory() as folder:
        for name in KEPT:
            with tarfile.open(ROOT / "tools" / "kept" / name) as members:
                members.extractall(folder, filter="data")
        kept = (path.parent for path in Path(folder).glob("*/run.json"))
        paths = sorted([*(ARTIFACTS / "claude").glob("*/"), *kept], key=lambda path: path.name)
        runs = [read_run(path) for path in paths]
    return [run for run in runs if run.steps]


def held_against(runs: Sequence[Run], landscape: Landscape) -> list[str]:
    """A line a round: the best of the runs that came to it, and of as many searches there."""
    from tools.simulation.landscape import Ground
    from tools.simulation.trial import search

    told = []
    for done in range(1, 4):
        own = {run.problem: run.bests[done] for run in runs if len(run.bests) > done}
        searched = [
            search(Ground(landscape, start, seed), "beam", seed, rounds=done).best(done)
            for start in landscape.starts
            if start.problem in own
            for seed in range(SEEDS)
        ]
        ends = math.exp(fmean(own.values())), math.exp(fmean(map(math.log, searched)))
        told.append(
            f"after round {done}: {len(own)} runs {ends[0]:.3f} times the floor, the landscape "
            f"{ends[1]:.3f}"
        )
    return told


if __name__ == "__main__":
    main()
