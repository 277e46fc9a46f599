"""Sources captured in the judge's own sandboxed processes, for an H200 that is not here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.ahead import Captures, Means
from beamsearch.judge.capture.forms import Captured
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sources import source_key, write_source
from beamsearch.problem.problem import Problem
from kernel_profiling.gpus import find_gpu
from tests.judge.conftest import SCALE_KERNEL

HOST = "    y = torch.empty_like(x)\n"
LAUNCH = (
    "    scale_kernel[(triton.cdiv(x.numel(), 1024),)]"
    "(x, bias, y, x.numel(), x.shape[1], BLOCK=1024)\n"
)
Capture = Callable[..., Captured]


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkServers]:
    made = ForkServers(tmp_path_factory.mktemp("scratch"), interpreter=False)
    yield made
    made.close()


@pytest.fixture(scope="module")
def capture(servers: ForkServers, scale_problem: Problem) -> Iterator[Capture]:
    """What comes of a source as the judge captures it, for an H200; of the small problem unless
    another is named."""
    opened: dict[Path, Captures] = {}

    def captured(source: str, problem: Problem = scale_problem) -> Captured:
        if problem.path not in opened:
            arguments = meta_arguments(problem)
            opened[problem.path] = Captures(
                servers, find_gpu("h200"), arguments, Usage(), 7, means=Means(1)
            )
        path = write_source(servers._scratch, source)
        return opened[problem.path].begin(path, source_key(source)).result()

    yield captured
    for captures in opened.values():
        captures.close()


def changed(*changes: tuple[str, str], source: str = SCALE_KERNEL) -> str:
    for before, after in changes:
        assert before in source, before
        source = source.replace(before, after, 1)
    return source


def before_call(lines: str) -> str:
    """The small kernel with more host code."""
    return changed((HOST, HOST + lines))


WITH_WORK = (
    ("y_ptr, total", "y_ptr, work_ptr, total"),
    ("(x, bias, y, x.numel()", "(x, bias, y, work, x.numel()"),
    ("@triton.jit", "KEPT = {}\n\n@triton.jit"),
)
"""The small kernel with another tensor, and a place to keep it in."""


def working_with(lines: str) -> str:
    return changed((HOST, HOST + lines), *WITH_WORK)
