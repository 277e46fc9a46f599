"""Differences of a round are told from its plans, its kernels and its verdicts."""

import re
from itertools import combinations
from statistics import fmean

from beamsearch.problem.kernel import shared_lines
from beamsearch.records.packed import opened_run
from tests.report.made import WITH_FAILURE
from tools.apart import lines


def test_a_line_tells_of_the_kernels_of_a_round():
    trace = opened_run(WITH_FAILURE)
    rounds = trace.completed_rounds()[1:]
    told = lines("it", trace)
    assert len(told) == len(rounds) > 1
    for line, record in zip(told, rounds, strict=True):
        assert line.startswith(f"it, round {record.round}: plans 0.")
        own = [c for c in record.candidates if not (c.repair_of or c.tuned_from)]
        sources = [trace.kernel_source(c) for c in own if c.kernel_file]
        apart = fmean(1 - shared_lines(a, b) for a, b in combinations(sources, 2))
        assert re.search(r"kernels ([\d.]+) apart", line)[1] == f"{apart:.2f}"
        failed = [c for c in own if not c.verdict.correct]
        assert line.endswith(f"; failed {len(failed)} of {len(own)}")
    assert any("failed 0" not in line for line in told)
