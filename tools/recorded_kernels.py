"""Measured kernels of recorded runs, and what each of their launches has to do.

`python tools/recorded_kernels.py` captures, compiles and traces every correct kernel of the runs in
artifacts/ without a GPU (about an hour on two cores) and writes tests/data/h200_recorded.json:
with it, the modelled time is held against kernels that it was not made for. What is in the table
already stays. `--others FILE` adds kernels from elsewhere: JSON lines with name, author, problem,
ms (measured), configs (of autotuned ones) and source.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TABLE = ROOT / "tests" / "data" / "h200_recorded.json"


def recorded() -> Iterator[dict[str, Any]]:
    """The correct, measured kernels of every recorded run, each source once a problem."""
    from beamsearch.records.packed import opened_run

    for folder in sorted(path.parent for path in (ROOT / "artifacts").glob("*/*/run.json")):
        trace, seen = opened_run(folder), set()
        for record in trace.completed_rounds():
            for candidate in record.candidates:
                time = candidate.measurement
                if not candidate.verdict.correct or time is None or time.source != "measured":
                    continue
                source = trace.kernel_source(candidate)
                if source not in seen:
                    seen.add(source)
                    yield {
                        "name": f"{folder.parent.name}/{folder.name[:2]}/{candidate.name}",
                        "author": "input" if candidate.is_first else folder.parent.name,
                        "problem": folder.name,
                        "ms": time.time_ms,
                        "configs": time.configs,
                        "source": source,
                    }


def looked_at(rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Rows of the table: with the works of the form that was measured, without the source."""
    from beamsearch.gpu.machine import modelled
    from beamsearch.gpu.usage import Usage
    from beamsearch.judge.rejection import Log, Rejected
    from beamsearch.judge.sandbox.processes import ForkServers
    from beamsearch.judge.without_gpu import ModellingJudge
    from beamsearch.problem.problem import find_problem
    from kernel_profiling.estimate.time_model import work_of
    from kernel_profiling.estimate.traffic import pair_launches

    gpu = modelled("h200").gpu
    for problem in dict.fromkeys(row["problem"] for row in rows):
        with tempfile.TemporaryDirectory() as folder:
            servers = ForkServers(Path(folder), interpreter=True)
            servers.start()
            judge = ModellingJudge(
                find_problem(problem),
                gpu,
                servers,
                Path(folder),
                seed=0,
                slots=1,
                strict_nan=False,
                usage=Usage(),
            )
            for row in (row for row in rows if row["problem"] == problem):
                found = {k: v for k, v in row.items() if k not in ("source", "configs")}
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
    parser.add_argument("--others", type=Path)
    arguments = parser.parse_args()
    there = json.loads(TABLE.read_text()) if TABLE.is_file() else []
    known = {row["name"] for row in there}
    rows = [row for row in recorded() if row["name"] not in known]
    if arguments.others is not None:
        more = map(json.loads, arguments.others.read_text().splitlines())
        rows += [row for row in more if row["ms"] is not None and row["name"] not in known]
    for row in looked_at(rows):
        there.append(short(row))
        print(row["name"], row["failed"] or "", flush=True)
        TABLE.write_text("[\n" + ",\n".join(map(json.dumps, there)) + "\n]\n")


if __name__ == "__main__":
    main()
