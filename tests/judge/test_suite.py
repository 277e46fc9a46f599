"""No cheat gets through, no honest kernel is rejected; `python -m tests.judge.suite` tells more."""

from __future__ import annotations

import ast
from collections import Counter

import pytest

from tests.judge.suite.__main__ import line, told
from tests.judge.suite.cases import FOLDER, Case, Result, read_cases, run_cases
from tests.sample import drawn

CASES = read_cases()
WITHOUT_GPU = [case for case in CASES if not case.needs_gpu]
SAMPLED = {"honest": 1, "cheats": 3, "wrong": 1, "hostile": 1}
"""How many are judged in each run of the tests; all take half an hour on two cores that do
something else too. Honest ones go all the way."""


def test_suite_is_whole() -> None:
    kinds = Counter(case.kind for case in CASES)
    assert kinds["cheats"] >= 140
    assert kinds["honest"] >= 66
    assert kinds["wrong"] >= 50
    assert kinds["hostile"] >= 4
    assert len({case.name for case in CASES}) == len(CASES)
    for case in CASES:
        assert case.what.endswith("."), case.name
        assert (FOLDER / "problems" / case.problem / "problem.py").is_file()
        names = {n.name for n in ast.parse(case.source).body if hasattr(n, "name")}
        assert names & {"kernel_function", "ModelNew"}, case.name


def all_as_expected(cases: list[Case], device: int | None) -> None:
    results: list[Result] = run_cases(cases, device, tell=lambda result: print(line(result)))
    assert len(results) == len(cases)
    missed = {r.case.name: told(r) for r in results if not r.as_expected}
    assert not missed


@pytest.mark.slow(always=True)
@pytest.mark.timeout(900)
def test_a_part_of_the_suite_without_a_gpu() -> None:
    names = {
        kind: drawn((c.name for c in WITHOUT_GPU if c.kind == kind), count)
        for kind, count in SAMPLED.items()
    }
    cases = [case for case in WITHOUT_GPU if case.name in names[case.kind]]
    assert len(cases) == sum(SAMPLED.values())
    all_as_expected(cases, None)


@pytest.mark.timeout(3600)
def test_all_of_the_suite_without_a_gpu(pytestconfig: pytest.Config) -> None:
    if not pytestconfig.getoption("all"):
        pytest.skip("--all runs it")
    all_as_expected(WITHOUT_GPU, None)


@pytest.mark.gpu
@pytest.mark.timeout(1800)
def test_suite_on_a_gpu() -> None:
    all_as_expected(CASES, 0)
