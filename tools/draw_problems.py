"""Draw the problems of a study out of KernelBench, before anything is built for it.

`python -m tools.draw_problems` prints, for each level, the order in which problems are taken until
there are as many as `WANTED`. One is passed over where it does not load, does not fit on the GPU,
has an audit with flaws, or less headroom than `HEADROOM`: best baseline over floor, both measured.
What is taken is in float32 and bfloat16 in turn. `TAKEN` are those that this project has been tried
on, which would show nothing new.

`--measure KERNELBENCH` draws them: on a machine with a GPU it looks at one problem after the other
and prints why each is taken or passed over; `--out FILE` gets the same as lines of JSON, and what
is in FILE is not measured again.
"""

from __future__ import annotations

import argparse
import json
import random
from pathlib import Path
from typing import Any

SEED = 20261123
HEADROOM = 1.2
LEVELS = {1: 100, 2: 100, 3: 50}
"""Level of KernelBench -> how many problems it has."""
WANTED = {1: 4, 2: 3, 3: 1}
TAKEN = {
    1: {1, 4, 19, 23, 33, 34, 36, 40, 42, 43, 47, 50, 54, 61, 77, 82, 89, 95, 97},
    2: {1, 4, 12, 17, 21, 24, 31, 32, 40, 46, 52, 82},
    3: {1, 33, 35, 36, 39, 43},
}


def drawn(level: int, seed: int = SEED) -> list[int]:
    """Numbers of a level's problems, in the order in which they are taken."""
    left = [number for number in range(1, LEVELS[level] + 1) if number not in TAKEN[level]]
    random.Random(f"{seed}/{level}").shuffle(left)
    return left


def main() -> None:
    """Print the order, a line a level, or draw by it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", type=Path, metavar="KERNELBENCH")
    parser.add_argument("--out", type=Path, metavar="FILE", default=Path("drawn.jsonl"))
    asked = parser.parse_args()
    if asked.measure:
        taken = 0
        for level, wanted in WANTED.items():
            taken = draw(asked.measure, level, taken, wanted, asked.out)
        return
    for level, wanted in WANTED.items():
        print(f"level {level}, the first {wanted} that fit:", *drawn(level)[: 6 * wanted])


def draw(folder: Path, level: int, taken: int, wanted: int, out: Path) -> int:
    """Go through a level until as many fit as are wanted; how many are taken then in all."""
    lines = out.read_text().splitlines() if out.exists() else []
    known = {(row["path"], row["dtype"]): row for row in map(json.loads, lines)}
    enough = taken + wanted
    for number in drawn(level):
        if taken == enough:
            break
        (path,) = folder.glob(f"level{level}/{number}_*.py")
        dtype = ("float32", "bfloat16")[taken % 2]
        name = str(path.relative_to(folder))
        row = known.get((name, dtype))
        if row is None:
            row = {"path": name, "dtype": dtype, **measured(path, dtype)}
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
        taken += not row["passed_over"]
        print(name, dtype, row["passed_over"] or "taken", row.get("ms"), flush=True)
    return taken


def measured(path: Path, dtype: str) -> dict[str, Any]:
    """`ms`: floor and baselines in milliseconds; `passed_over`: why it is, or None."""
    from beamsearch.baselines.floor import measure_floor
    from beamsearch.errors import BeamsearchError
    from beamsearch.executor.opened import lane
    from beamsearch.gpu.machine import find_machine
    from beamsearch.problem.problem import read_problem
    from beamsearch.records.baselines import BASELINES, baseline_subjects
    from beamsearch.records.job import CompareJob
    from beamsearch.suite.audit import audit

    machine = find_machine(None)
    found = audit(path, machine.gpu)
    flaws = [fault.flaw for fault in found.faults]
    if found.failed or flaws:
        return {"passed_over": found.failed or ", ".join(flaws)}
    try:
        problem = read_problem(path).with_dtype(dtype)
        floor = measure_floor(problem, machine).time_ms
        with lane(problem, machine) as (executor, _):
            compared = executor.run(CompareJob(subjects=baseline_subjects()))
    except BeamsearchError as error:
        return {"passed_over": str(error)}
    ms = {"floor": floor} | {
        name: compared.measurements[name].time_ms
        for name in BASELINES
        if name in compared.measurements
    }
    if "eager" not in ms:
        return {"passed_over": "no time of eager", "ms": ms}
    headroom = min(ms[name] for name in BASELINES if name in ms) / floor
    little = f"headroom {headroom:.2f}" if headroom < HEADROOM else None
    return {"passed_over": little, "headroom": headroom, "ms": ms}


if __name__ == "__main__":
    main()
