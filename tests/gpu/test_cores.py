"""The cores that a process may use are not those that the machine has."""

import os
import subprocess
import sys

import pytest

from beamsearch.gpu import cores


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("max 100000", 4), ("250000 100000", 2), ("50000 100000", 1), ("900000 100000", 4), ("", 4)],
)
def test_a_containers_limit_counts(tmp_path, monkeypatch, limit, expected):
    (tmp_path / "cpu.max").write_text(limit)
    monkeypatch.setattr(cores, "QUOTA", tmp_path / "cpu.max")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(4)))
    assert cores.cores() == expected


def test_a_process_counts_the_cores_that_it_is_let_run_on():
    (one, *_) = os.sched_getaffinity(0)
    told = f"import os; os.sched_setaffinity(0, {{{one}}}); from beamsearch.gpu.cores import cores"
    program = [sys.executable, "-c", f"{told}; print(cores())"]
    assert subprocess.run(program, capture_output=True, check=True).stdout == b"1\n"
