"""One executor without a GPU for all tests of a problem; a small problem that is quick to judge."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.problem.problem import Problem, read_problem
from beamsearch.records.job import JudgeJob, Judgement, Subject

SCALE_PROBLEM = '''
import torch
import torch.nn as nn

DTYPE = torch.bfloat16
rows = 1024
columns = 4096

class Model(nn.Module):
    """Twice x plus one row."""
    def __init__(self):
        super().__init__()
        self.bias = nn.Parameter(torch.rand(columns))

    def forward(self, x):
        return 2 * x + self.bias

def get_inputs():
    return [torch.rand(rows, columns)]

def get_init_inputs():
    return []
'''

SCALE_KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def scale_kernel(x_ptr, bias_ptr, y_ptr, total, columns, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < total
    x = tl.load(x_ptr + index, mask=mask).to(tl.float32)
    bias = tl.load(bias_ptr + index % columns, mask=mask).to(tl.float32)
    tl.store(y_ptr + index, (2 * x + bias).to(y_ptr.dtype.element_ty), mask=mask)

def kernel_function(x, bias):
    y = torch.empty_like(x)
    scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, bias, y, x.numel(), x.shape[1], BLOCK=1024)
    return y
"""


def write_problem(folder: Path, source: str, name: str = "scale") -> Problem:
    """A problem in a folder of its own."""
    (folder / name).mkdir(parents=True)
    path = folder / name / "problem.py"
    path.write_text(source)
    return read_problem(path)


@pytest.fixture(scope="session")
def scale_problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    problem = write_problem(tmp_path_factory.mktemp("problems"), SCALE_PROBLEM)
    (problem.path.parent / "input_kernel.py").write_text(SCALE_KERNEL)
    return problem


@pytest.fixture(scope="session")
def executor(
    scale_problem: Problem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalExecutor]:
    made = LocalExecutor(
        scale_problem,
        machine=modelled(),
        scratch=tmp_path_factory.mktemp("scratch"),
        seed=7,
    )
    yield made
    made.close()


@pytest.fixture
def judge(executor: LocalExecutor) -> Callable[[str], Judgement]:
    return lambda source: executor.run(JudgeJob(subject=Subject(name="candidate", source=source)))
