"""The reference as a runner calls it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from beamsearch.judge.runner.reference import attributes_kept, problem_message, reference_maker
from beamsearch.problem.instance import instantiate
from beamsearch.records.job import CompareJob, Subject
from tests.judge.conftest import write_problem

STATE = """
import torch
DTYPE = torch.bfloat16
rows, columns = 48, 64
class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.mix = torch.nn.Linear(2 * columns, columns)
        self.hidden = torch.zeros(rows, columns)
    def forward(self, x, start):
        self.hidden.copy_(start)
        self.hidden = torch.tanh(self.mix(torch.cat((x, self.hidden), 1)))
        return self.hidden.clone()
def get_inputs(): return [torch.randn(rows, columns), torch.randn(rows, columns)]
def get_init_inputs(): return [columns]
"""
"""State that is no buffer: another tensor after each call."""
DEADLY = """
import os, torch
rows, columns = 1024, 4096
class Model(torch.nn.Module):
    def forward(self, x):
        if torch.compiler.is_compiling():
            os.kill(os.getpid(), 9)
        return torch.relu(x)
def get_inputs(): return [torch.randn(rows, columns)]
def get_init_inputs(): return []
"""


def test_attributes_are_after_a_call_what_they_were(tmp_path: Path) -> None:
    instance = instantiate(write_problem(tmp_path, STATE, "state"))
    model, before = instance.model, instance.model.hidden
    with torch.no_grad():
        attributes_kept(model, lambda: model(*instance.inputs))()
    assert model.hidden is before
    with torch.no_grad():
        model(*instance.inputs)
    assert model.hidden is not before


def test_state_that_is_no_buffer_has_the_problems_dtype(tmp_path: Path) -> None:
    problem = write_problem(tmp_path, STATE, "state")
    instance = instantiate(problem)
    call = reference_maker(problem_message(problem), "cpu", None)(instance.arguments)
    with torch.inference_mode():
        torch.testing.assert_close(call(), instance.reference())
        torch.testing.assert_close(call(), instance.reference())


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_graphs_of_a_module_with_state_are_right(tmp_path: Path) -> None:
    compared = _compared(tmp_path, STATE)
    assert not compared.failed
    assert [compared.measurements[name].graph for name in ("eager", "compile")] == [True, True]


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_a_compiler_that_dies_costs_no_other_baseline(tmp_path: Path) -> None:
    compared = _compared(tmp_path, DEADLY)
    assert set(compared.measurements) == {"eager"}
    assert "killed by SIGKILL" in compared.failed["compile"]


def _compared(folder: Path, source: str):  # type: ignore[no-untyped-def]
    from tests.judge.test_gpu import gpu_executor

    executor = gpu_executor(write_problem(folder, source, "problem"), folder / "scratch")
    try:
        subjects = [Subject(name=kind, kind=kind) for kind in ("eager", "compile")]
        return executor.run(CompareJob(subjects=subjects))
    finally:
        executor.close()
