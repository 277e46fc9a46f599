"""Fit the landscape that strategies are compared on, to recorded runs and hand-written variants.

`python tools/fit_landscape.py [RUN…]` (default: those under artifacts/playbook) writes
tools/simulation/landscape.json and prints what it rests on. It takes no GPU and a few seconds.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
VARIANTS = ROOT / "tests" / "data" / "h200_variants.json"


def main() -> None:
    """Read, fit, write."""
    from beamsearch.records.trace import write_record
    from tools.simulation.fit import fit, read_run
    from tools.simulation.landscape import FITTED

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="*", type=Path)
    given = parser.parse_args().runs
    recorded = sorted((ROOT / "artifacts" / "playbook").glob("*/"))
    runs = [read_run(path) for path in given or recorded]
    landscape = fit(runs, json.loads(VARIANTS.read_text())["variants"])
    write_record(FITTED, landscape)
    print(landscape.model_dump_json(indent=1))


if __name__ == "__main__":
    main()
