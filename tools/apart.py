"""How different the plans and the kernels of each round of some runs are, and how many failed.

`python -m tools.apart RUN…` prints a line a round, of runs too that were recorded before their
rounds kept it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from beamsearch.records.packed import opened_run
from beamsearch.records.trace import Trace
from beamsearch.run.plans import differences


def lines(name: str, trace: Trace) -> list[str]:
    """A line a round of a run, but the first, which has no plans."""
    told = []
    for record in trace.completed_rounds()[1:]:
        first = [c for c in record.candidates if not (c.repair_of or c.tuned_from)]
        failed = sum(not c.verdict.correct for c in first)
        apart = differences(trace, record.round, record.candidates)
        values = ", ".join(
            f"{what.removesuffix('_apart')} {value:.2f} apart"
            for what, value in apart.items()
            if value is not None
        )
        told.append(f"{name}, round {record.round}: {values}; failed {failed} of {len(first)}")
    return told


def main() -> None:
    """Print them for the runs on the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    for run in parser.parse_args().runs:
        for line in lines(run.name, opened_run(run)):
            print(line)


if __name__ == "__main__":
    main()
