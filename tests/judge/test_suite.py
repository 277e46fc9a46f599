"""No cheat gets through, no honest kernel is rejected; `python -m tests.judge.suite` tells more."""

from __future__ import annotations

import ast
import os
from collections import Counter

import pytest

from tests.judge.suite.__main__ import line, told
from tests.judge.suite.cases import FOLDER, Case, Result, read_cases, run_cases

CASES = read_cases()
WITHOUT_GPU = [case for case in CASES if not case.needs_gpu]
QUICK = (
    *("honest/softmax_heuristics", "honest/linear_device_descriptors"),
    *("honest/pool_index_table_kept", "honest/sum_last_program_finishes"),
    *("hostile/segfault", "hostile/forks_a_daemon", "hostile/poisons_the_cache"),
)
"""Of honest kernels and hostile ones, what is judged in every run of the tests; the suite's own
command, or BEAMSEARCH_SUITE=1, judges all."""
LARGE = ("cheats", "cheats_on_plans", "cheats_on_gpu", "honest_more", "wrong", "wrong_blind")
"""Of these folders, one file in sixteen is judged in every run, of honest kernels, which go all the
way, one in thirty-four: all take half an hour on two cores that do something else too."""


def is_quick(case: Case) -> bool:
    """Whether every run of the tests judges it."""
    if case.path.parent.name in LARGE:
        beside = [other for other in WITHOUT_GPU if other.path.parent == case.path.parent]
        return beside.index(case) % (34 if case.kind == "honest" else 16) == 0
    return case.name in QUICK


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


@pytest.mark.timeout(900)
def test_suite_without_a_gpu() -> None:
    all_as_expected([case for case in WITHOUT_GPU if is_quick(case)], None)


@pytest.mark.slow
@pytest.mark.skipif("BEAMSEARCH_SUITE" not in os.environ, reason="BEAMSEARCH_SUITE=1 runs them all")
@pytest.mark.timeout(3600)
def test_all_the_others_without_a_gpu() -> None:
    all_as_expected([case for case in WITHOUT_GPU if not is_quick(case)], None)


@pytest.mark.gpu
@pytest.mark.timeout(1800)
def test_suite_on_a_gpu() -> None:
    all_as_expected(CASES, 0)
