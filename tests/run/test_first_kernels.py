"""Runs of problems that come without a kernel."""

import io

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.errors import Waiting
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.problem.problem import read_problem
from beamsearch.proposer.questions import Reply
from beamsearch.records.trace import Trace
from beamsearch.run.first_kernels import FirstKernels, first_candidates
from beamsearch.run.run import run
from beamsearch.run.stop import StopToken
from beamsearch.settings import Settings
from tests.proposer.situations import first_question

PROBLEM = """
import torch
import torch.nn as nn

ROWS = 8192
COLUMNS = 4096


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.norm = nn.LayerNorm(columns)

    def forward(self, x):
        return torch.relu(self.norm(x))


def get_inputs():
    return [torch.randn(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
"""


@pytest.fixture
def problem(tmp_path):
    folder = tmp_path / "norm"
    folder.mkdir()
    folder.joinpath("problem.py").write_text(PROBLEM)
    return read_problem(folder / "problem.py")


class Writer:
    """Answers once."""

    name = "some-model"
    reads_prompts = True

    def answer(self, question, prompt):
        return Reply(text="a way\n```python\ndef kernel_function(x):\n    ...\n```\n", author="m")


def test_the_model_is_asked_while_the_compiler_works(tmp_path):
    trace = Trace(tmp_path)
    with pytest.raises(Waiting, match="GPU step"):  # the compiler's, and the judge's, are to come
        FirstKernels(
            trace=trace,
            executor=RemoteExecutor("NVIDIA H200"),
            proposer=Writer(),
            question=first_question(),
            quick=False,
            stop=StopToken(),
            tell=print,
        ).gather()
    assert "kernel_function" in (trace.worker(0, 0) / "first_reply.txt").read_text()


@pytest.mark.gpu
def test_the_compilers_kernel_starts_and_is_not_lost(problem, tmp_path):
    settings = Settings(llm="playbook", rounds=1, workers=1, variants=1, profiler="compiler")
    record = run(
        problem, settings, tmp_path / "run", kernel=None, observer=PlainDisplay(io.StringIO())
    )
    first, *_ = first_candidates(Trace(tmp_path / "run"))
    assert first.verdict.correct
    assert first.author == "torch.compile"
    confirmation = record.confirmation
    compiled = confirmation.baselines.compile
    assert confirmation.winner.time_ms <= compiled.time_ms * 1.02
