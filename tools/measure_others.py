"""Judge and time kernels written elsewhere on this machine's GPU, into lines of JSON.

`python -m tools.measure_others FOLDER --author NAME --out FILE`: a folder in FOLDER is a problem of
this project by name, or holds its own problem.py; every other Python file in it is a kernel.
`--dtype` is taken for the problems that came along. `tools/recorded_kernels.py --others FILE
FOLDER` holds the modelled time against the lines. They hold the kernels' text, which is somebody
else's: only what that tool makes of them belongs into a repository.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

OWN = "problem.py"
AT_ONCE = 3
"""Kernels in work: while one is on the GPU the next are captured and compiled."""


def judged(executor: Any, row: dict[str, Any]) -> dict[str, Any]:
    """The row with its time in milliseconds, or None and why."""
    from beamsearch.errors import BeamsearchError
    from beamsearch.records.job import JudgeJob, Subject

    began = time.monotonic()
    try:
        job = JudgeJob(subject=Subject(name=row["name"], source=row["source"]))
        judgement = executor.run(job)
    except BeamsearchError as error:
        return row | {"ms": None, "why": str(error)}
    timed = judgement.measurement if judgement.verdict.correct else None
    row |= {"ms": timed and timed.time_ms, "configs": timed.configs if timed else []}
    return row | {"why": judgement.verdict.reason, "seconds": time.monotonic() - began}


def measured(folder: Path, author: str, dtype: str) -> Iterator[dict[str, Any]]:
    """A row for each kernel below a problem's folder."""
    from beamsearch.executor.opened import lane
    from beamsearch.gpu.machine import find_machine
    from beamsearch.problem.problem import find_problem, read_problem

    own = folder / OWN
    problem = read_problem(own).with_dtype(dtype) if own.is_file() else find_problem(folder.name)
    rows = [
        {
            "name": f"{author}/{folder.name}/{path.stem}",
            "author": author,
            "problem": folder.name,
            "dtype": problem.dtype,
            "source": path.read_text(),
        }
        for path in sorted(folder.glob("*.py"))
        if path.name != OWN
    ]
    with lane(problem, find_machine(0)) as (executor, _), ThreadPoolExecutor(AT_ONCE) as pool:
        yield from pool.map(partial(judged, executor), rows)


def main() -> None:
    """Measure every folder's kernels, a line each as soon as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--author", required=True)
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    for folder in sorted(path for path in arguments.folder.iterdir() if path.is_dir()):
        for row in measured(folder, arguments.author, arguments.dtype):
            with arguments.out.open("a") as lines:
                lines.write(json.dumps(row) + "\n")
            print(
                row["name"], row["ms"] or row["why"], f"{row.get('seconds', 0):.1f} s", flush=True
            )


if __name__ == "__main__":
    main()
