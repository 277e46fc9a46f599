"""Runs of problems that come without a kernel."""

import io

import pytest

from beamsearch.cli.display import PlainDisplay
from beamsearch.errors import Waiting
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.problem.problem import read_problem
from beamsearch.proposer.questions import Reply
from beamsearch.records.captured import Compilation
from beamsearch.records.job import Judgement
from beamsearch.records.trace import Trace
from beamsearch.records.verdict import Outcome
from beamsearch.run.first_kernels import FirstKernels, first_candidates
from beamsearch.run.run import run
from beamsearch.run.stop import StopToken
from beamsearch.settings import Settings
from tests.proposer.situations import first_question
from tests.search.made import CORRECT, candidate, failed

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


def gather(trace, quick=True):
    return FirstKernels(
        trace=trace,
        executor=RemoteExecutor("NVIDIA H200"),
        proposer=Writer(),
        question=first_question(),
        quick=quick,
        stop=StopToken(),
        tell=print,
    ).gather()


def leave(path, answer):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(answer.model_dump_json())


@pytest.mark.parametrize("correct", [True, False])
def test_the_compiler_tunes_without_libraries_only_where_nobody_else_has_a_kernel(
    tmp_path, correct
):
    # Given a library's kernel from the compiler, and verdicts on all that the model writes
    trace = Trace(tmp_path)
    library = Compilation(way="default", reason="it calls the library for convolution")
    leave(trace.round(0) / "compiled" / "default.json", library)
    verdict = CORRECT if correct else failed(Outcome.WRONG)
    time = candidate("r0-s0").measurement if correct else None
    for name in ("first", "first_2", "first_3", "first_4"):
        leave(trace.worker(0, 0) / f"{name}.json", Judgement(verdict=verdict, measurement=time))
    # Then a GPU is waited for, to tune, only after the model has nothing correct
    if correct:
        assert "kernel_function" in gather(trace)
        with pytest.raises(Waiting, match="GPU step"):  # for the tuned one
            gather(trace, quick=False)
    else:
        with pytest.raises(Waiting, match="GPU step"):
            gather(trace)
    assert (trace.worker(0, 0) / "first_reply_4.txt").is_file() is not correct


def test_the_model_is_asked_while_the_compiler_works(tmp_path):
    trace = Trace(tmp_path)
    with pytest.raises(Waiting, match="GPU step"):  # the compiler's, and the judge's, are to come
        gather(trace)
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
