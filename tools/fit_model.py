"""Fit the analytic model's constants to measured variants, and say how well it ranks them.

`python tools/fit_model.py` compiles and traces every variant again for the GPU they were measured
on (about five minutes on two cores), writes what each launch has to do into the table of
measurements, tests/data/h200_variants.json, fits, and writes time_model.json beside the model.
`--measured FILE` first takes new times from a file that tools/measure_variants.py wrote.
`--fit-only` keeps what the table says of the launches. Compiling and tracing are two processes:
Triton decides at import which of the two it does.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
TABLE = ROOT / "tests" / "data" / "h200_variants.json"
SOURCES = ROOT / "tests" / "data" / "variant_sources.json"
CONSTANTS = ROOT / "profiling" / "kernel_profiling" / "estimate" / "time_model.json"


def look(stage: str, names: str, out: Path) -> None:
    """Compile or trace (`stage`) the variants whose names match, into a file: name -> record."""
    from measure_variants import load

    from beamsearch.problem.instance import instantiate
    from beamsearch.problem.kernel import bind
    from beamsearch.problem.problem import find_problem
    from kernel_profiling.gpus import find_gpu

    if stage == "trace":
        from kernel_profiling.estimate.access import trace_call as see
    else:
        from tools.compiled import compiled as see  # type: ignore[assignment]
    gpu = find_gpu("h200")
    instances: dict[str, Any] = {}
    found = {}
    with tempfile.TemporaryDirectory() as folder:
        for variant in json.loads(SOURCES.read_text()):
            if not re.search(names, variant["name"]):
                continue
            problem = variant["problem"]
            if problem not in instances:
                instances[problem] = instantiate(find_problem(problem), "meta")
            module = load(variant["name"], variant["source"], Path(folder))
            seen = see(bind(module, instances[problem].arguments), gpu)
            found[variant["name"]] = seen.model_dump(mode="json")
    out.write_text(json.dumps(found))


def works(names: str = "") -> dict[str, list[dict[str, Any]]]:
    """Variant -> what each of its launches has to do, looked at anew."""
    from kernel_profiling.estimate.time_model import work_of
    from kernel_profiling.estimate.traffic import AccessTrace, pair_launches
    from kernel_profiling.gpus import find_gpu
    from kernel_profiling.profile import Profile

    with tempfile.TemporaryDirectory() as folder:
        running = []
        for stage in ("compile", "trace"):
            environment = {**os.environ, "TRITON_INTERPRET": "1"} if stage == "trace" else None
            command = [sys.executable, __file__, "--look", stage, names, f"{folder}/{stage}.json"]
            running.append(subprocess.Popen(command, env=environment))
        if any(process.wait() for process in running):
            raise SystemExit("a variant could not be compiled or traced; see above")
        profiles, traces = (
            json.loads(Path(folder, f"{stage}.json").read_text()) for stage in ("compile", "trace")
        )
    gpu = find_gpu("h200")
    return {
        name: [
            _short(work_of(launch, seen, gpu).model_dump(mode="json"))
            for launch, seen in pair_launches(
                Profile.model_validate(profile).launches, AccessTrace.model_validate(traces[name])
            )
        ]
        for name, profile in profiles.items()
    }


def _short(value: Any) -> Any:
    """Numbers to six digits, which is more than the model knows."""
    if isinstance(value, dict):
        return {key: _short(item) for key, item in value.items()}
    return float(f"{value:.6g}") if isinstance(value, float) else value


def main() -> None:
    """Look, fit, write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measured", type=Path)
    parser.add_argument("--fit-only", action="store_true")
    parser.add_argument(
        "--look", nargs=3, metavar=("STAGE", "NAMES", "OUT"), help=argparse.SUPPRESS
    )
    arguments = parser.parse_args()
    if arguments.look:
        stage, names, out = arguments.look
        look(stage, names, Path(out))
        return
    from kernel_profiling.gpus import find_gpu
    from tools.model_fit import fit, leave_one_out, samples_of

    table = json.loads((arguments.measured or TABLE).read_text())
    if not arguments.fit_only:
        import triton

        seen = works()
        table["works_from_triton"] = triton.__version__
        table["variants"] = [
            {**{k: v for k, v in row.items() if k != "source"}, "works": seen[row["name"]]}
            for row in table["variants"]
        ]
        rows = ",\n".join(json.dumps(row) for row in table["variants"])
        head = json.dumps({k: v for k, v in table.items() if k != "variants"}, indent=1)
        TABLE.write_text(f'{head[:-2]},\n "variants": [\n{rows}\n]}}\n')
    samples = samples_of(table)
    gpu = find_gpu("h200")
    constants = fit(samples, gpu)
    CONSTANTS.write_text(constants.model_dump_json(indent=1) + "\n")
    print(constants.model_dump_json(indent=1))
    correlations = leave_one_out(samples, gpu)
    for problem, correlation in correlations.items():
        count = sum(sample.problem == problem for sample in samples)
        print(f"{correlation:.3f} over {count} variants of {problem}, fitted without them")
    print(f"median {sorted(correlations.values())[len(correlations) // 2]:.3f}")


if __name__ == "__main__":
    main()
