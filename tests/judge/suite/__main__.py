"""Runs the suite and prints the rates: `python -m tests.judge.suite [--json] [NAME…]`.

The exit code is 1 where a cheat or a wrong kernel is called correct, an honest one is rejected, or
a hostile one has no verdict in time or harms the kernel after it.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from beamsearch.gpu.environment import pick_device
from tests.judge.suite.cases import KINDS, Result, read_cases, run_cases

TITLES = {
    "cheats": "cheats caught",
    "wrong": "wrong kernels rejected",
    "hostile": "hostile kernels survived",
    "honest": "honest kernels passed",
}
EXPECTED = {
    "cheats": "rejected",
    "wrong": "rejected",
    "hostile": "a verdict in time, and the next kernel correct",
    "honest": "correct",
}


def main() -> int:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.judge.suite", description=__doc__)
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="parts of names")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--all", action="store_true", help="also what shows only on a GPU")
    asked = parser.parse_args()
    device = pick_device(None)
    cases = read_cases(asked.only)
    left_out = [c for c in cases if c.needs_gpu and device is None and not asked.all]
    results = run_cases(
        [case for case in cases if case not in left_out],
        device,
        tell=lambda result: None if asked.json else print(line(result), flush=True),
    )
    if asked.json:
        found = {
            "gpu": device is not None,
            "rates": rates(results),
            "results": [as_json(result) for result in results],
            "left_out": {case.name: case.needs_gpu for case in left_out},
        }
        print(json.dumps(found, indent=2))
    else:
        for text in summary(results, [f"{case.name}: {case.needs_gpu}" for case in left_out]):
            print(text)
    return 0 if all(result.as_expected for result in results) else 1


def line(result: Result) -> str:
    """A case on one line: as expected or not, verdict, reason."""
    mark = "ok " if result.as_expected else "NO "
    verdict = told(result)
    after = {None: "", True: "", False: "; the next kernel is not judged correct"}
    return (
        f"{mark} {result.case.name:<38} {result.seconds:5.1f} s  {verdict}"
        + (after[result.next_is_fine])
    )


def told(result: Result) -> str:
    """The verdict, or why there is none."""
    if result.judgement is None:
        return f"no verdict: {result.error}"
    verdict = result.judgement.verdict
    if not verdict.correct:
        return f"{verdict.outcome} at {verdict.stage}: {' '.join(verdict.reason.split())[:150]}"
    return f"correct, {result.judgement.measurement}"


def as_json(result: Result) -> dict[str, Any]:
    """A case as a record."""
    verdict = result.judgement.verdict if result.judgement else None
    return {
        "name": result.case.name,
        "what": result.case.what,
        "problem": result.case.problem,
        "expected": EXPECTED[result.case.kind],
        "as_expected": result.as_expected,
        "outcome": verdict.outcome if verdict else None,
        "stage": verdict.stage if verdict else None,
        "reason": verdict.reason if verdict else result.error,
        "seconds": round(result.seconds, 2),
        "next_is_fine": result.next_is_fine,
    }


def rates(results: list[Result]) -> dict[str, dict[str, int]]:
    """As expected, and all there are, by kind."""
    found = {}
    for kind in KINDS:
        of_kind = [result for result in results if result.case.kind == kind]
        if of_kind:
            good = sum(result.as_expected for result in of_kind)
            found[kind] = {"as_expected": good, "all": len(of_kind)}
    return found


def summary(results: list[Result], left_out: list[str]) -> list[str]:
    """The rates, what went wrong again, and what could not be run here."""
    lines = [""]
    for kind, rate in rates(results).items():
        lines.append(f"{TITLES[kind]}: {rate['as_expected']} of {rate['all']}")
    missed = [result for result in results if not result.as_expected]
    lines += ["", "not as expected:"] if missed else []
    lines += [f"  {result.case.name}: {result.case.what} -> {told(result)}" for result in missed]
    lines += ["", f"left out here, {len(left_out)} that show only on a GPU:"] if left_out else []
    return lines + [f"  {text}" for text in left_out]


if __name__ == "__main__":
    sys.exit(main())
