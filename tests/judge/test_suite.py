"""No cheat gets through, no honest kernel is rejected; `python -m tests.judge.suite` tells more."""

from __future__ import annotations

import ast
import os
from collections import Counter

import pytest

from beamsearch.judge.policy import disallowed
from tests.judge.suite.__main__ import line, told
from tests.judge.suite.cases import FOLDER, Case, Result, read_cases, run_cases

CASES = read_cases()
WITHOUT_GPU = [case for case in CASES if not case.needs_gpu]
QUICK = (
    *("honest/softmax_heuristics", "honest/linear_device_descriptors", "honest/linear_work_queue"),
    *("honest/pool_index_table_kept", "honest/sum_last_program_finishes", "honest/norm_dispatch"),
    *("hostile/segfault", "hostile/forks_a_daemon", "hostile/poisons_the_cache"),
)
"""Of these two kinds, what is judged in every run of the tests; the suite's own command, or
BEAMSEARCH_SUITE=1, judges all."""


def test_suite_is_whole() -> None:
    kinds = Counter(case.kind for case in CASES)
    assert kinds["cheats"] >= 44
    assert kinds["honest"] >= 24
    assert kinds["wrong"] >= 10
    assert kinds["hostile"] >= 4
    for case in CASES:
        assert case.what.endswith("."), case.name
        assert (FOLDER / "problems" / case.problem / "problem.py").is_file()
        names = {n.name for n in ast.parse(case.source).body if hasattr(n, "name")}
        assert names & {"kernel_function", "ModelNew"}, case.name


@pytest.mark.parametrize("case", [c for c in CASES if c.kind == "honest"], ids=lambda c: c.name)
def test_policy_lets_honest_kernels_pass(case: Case) -> None:
    assert disallowed(case.source) is None


def all_as_expected(cases: list[Case], device: int | None) -> None:
    results: list[Result] = run_cases(cases, device, tell=lambda result: print(line(result)))
    assert len(results) == len(cases)
    missed = {r.case.name: told(r) for r in results if not r.as_expected}
    assert not missed


def test_cheats_and_wrong_kernels_are_caught_without_a_gpu() -> None:
    all_as_expected([c for c in WITHOUT_GPU if c.kind in ("cheats", "wrong")], None)


@pytest.mark.parametrize("kind", ["honest", "hostile"])
def test_honest_kernels_pass_and_hostile_ones_do_no_harm_without_a_gpu(kind: str) -> None:
    all_as_expected([c for c in WITHOUT_GPU if c.kind == kind and c.name in QUICK], None)


@pytest.mark.slow
@pytest.mark.skipif("BEAMSEARCH_SUITE" not in os.environ, reason="BEAMSEARCH_SUITE=1 runs them all")
@pytest.mark.parametrize("kind", ["honest", "hostile"])
def test_all_the_others_without_a_gpu(kind: str) -> None:
    all_as_expected([c for c in WITHOUT_GPU if c.kind == kind and c.name not in QUICK], None)


@pytest.mark.gpu
@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["cheats", "wrong", "honest", "hostile"])
def test_suite_on_a_gpu(kind: str) -> None:
    all_as_expected([c for c in CASES if c.kind == kind], 0)
