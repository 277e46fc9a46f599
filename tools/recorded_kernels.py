"""Measured kernels of recorded runs, and what each of their launches has to do.

`python tools/recorded_kernels.py` captures, compiles and traces every correct kernel of the runs in
artifacts/ without a GPU (about an hour on two cores) and writes tests/data/h200_recorded.json:
with it, the modelled time is held against kernels that it was not made for. What is in the table
already stays. `--runs FOLDER` takes the runs in a folder instead; `--others FILE FOLDER` takes
kernels from elsewhere as well, as `tools/measure_others.py` wrote them, and the folder in which it
found them.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TABLE = ROOT / "tests" / "data" / "h200_recorded.json"
KEPT = ("name", "author", "problem", "dtype", "ms")
"""What the table says of a kernel beside its works: its source stays where it is."""


def recorded(folders: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """The correct, measured kernels of runs, each source once a problem."""
    from beamsearch.records.packed import opened_run

    for folder in folders:
        trace, seen = opened_run(folder), set()
        for record in trace.completed_rounds():
            for candidate in record.candidates:
                time = candidate.measurement
                if not candidate.verdict.correct or time is None or time.source != "measured":
                    continue
                source = trace.kernel_source(candidate)
                if source not in seen:
                    seen.add(source)
                    of = trace.problem_file if trace.problem_file.is_file() else folder.name
                    yield {
                        "name": f"{folder.parent.name}/{folder.name[:2]}/{candidate.name}",
                        "author": "input" if candidate.is_first else folder.parent.name,
                        "problem": folder.name,
                        "dtype": trace.run_record().problem_dtype,
                        "ms": time.time_ms,
                        "configs": time.configs,
                        "source": source,
                        "of": str(of),
                    }


def others(lines: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """The correct, measured kernels of a file of `tools/measure_others.py`."""
    for row in map(json.loads, lines.read_text().splitlines()):
        if row["ms"] is not None:
            of = folder / row["problem"] / "problem.py"
            yield row | {"of": str(of) if of.is_file() else row["problem"]}


def looked_at(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the table: with the works of the form that was measured, without the source."""
    from beamsearch.gpu.machine import modelled
    from beamsearch.gpu.usage import Usage
    from beamsearch.judge.capture.ahead import Means
    from beamsearch.judge.rejection import Log, Rejected
    from beamsearch.judge.sandbox.processes import ForkServers
    from beamsearch.judge.without_gpu import ModellingJudge
    from beamsearch.problem.least_work import least_work
    from beamsearch.problem.problem import find_problem
    from kernel_profiling.estimate.time_model import work_of
    from kernel_profiling.estimate.traffic import pair_launches

    gpu = modelled("h200").gpu
    for name, dtype in dict.fromkeys((row["of"], row["dtype"]) for row in rows):
        problem = find_problem(name).with_dtype(dtype)
        with tempfile.TemporaryDirectory() as folder:
            servers = ForkServers(Path(folder), interpreter=True)
            servers.start()
            judge = ModellingJudge(
                problem,
                gpu,
                servers,
                Path(folder),
                seed=0,
                slots=1,
                strict_nan=False,
                usage=Usage(),
                means=Means(cores=os.cpu_count() or 1),
            )
            least = least_work(problem).least_bytes
            for row in (row for row in rows if (row["of"], row["dtype"]) == (name, dtype)):
                found = {key: row[key] for key in KEPT} | {"least_bytes": least}
                log = Log()
                try:
                    captured, path = judge._captured(row["source"], log, {})
                    opened = partial(judge._opened, path, captured, log)
                    trace = judge._followed(opened, log)
                except Rejected as rejection:
                    yield found | {"failed": rejection.reason[:200]}
                    continue
                forms = {json.dumps(dict(form.pins)): form for form in captured.forms}
                form = forms.get(json.dumps(row["configs"]), captured.forms[0])
                pairs = pair_launches(form.compiled.profile.launches, trace)
                works = [
                    work_of(launch, seen, gpu).model_dump(mode="json") for launch, seen in pairs
                ]
                yield found | {"failed": trace.failed, "works": works}
            servers.close()
            judge.close()


def short(value: Any) -> Any:
    """Numbers to six digits, which is more than the model knows."""
    if isinstance(value, dict):
        return {key: short(item) for key, item in value.items()}
    if isinstance(value, list):
        return [short(item) for item in value]
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main() -> None:
    """Look at what the table lacks, and write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=Path, default=ROOT / "artifacts", metavar="FOLDER")
    parser.add_argument("--others", type=Path, nargs=2, metavar=("FILE", "FOLDER"))
    arguments = parser.parse_args()
    there = json.loads(TABLE.read_text()) if TABLE.is_file() else []
    known = {row["name"] for row in there}
    found = arguments.runs.rglob("run.json")
    rows = list(recorded(sorted(path.parent for path in found)))
    if arguments.others is not None:
        rows += others(*arguments.others)
    rows = [row for row in rows if row["name"] not in known]
    for row in looked_at(rows):
        there.append(short(row))
        print(row["name"], row["failed"] or "", flush=True)
        TABLE.write_text("[\n" + ",\n".join(map(json.dumps, there)) + "\n]\n")


if __name__ == "__main__":
    main()
