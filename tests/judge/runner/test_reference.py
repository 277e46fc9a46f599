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


RECURRENT = """
import torch
length, batch, width, hidden = 7, 3, 12, 16
class Model(torch.nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.layers = torch.nn.GRU(width, hidden, num_layers=2)
    def forward(self, x):
        return self.layers(x)[0]
def get_inputs(): return [torch.randn(length, batch, width)]
def get_init_inputs(): return [width, hidden]
"""


def test_weights_of_recurrent_layers_stay_in_one_piece(tmp_path: Path) -> None:
    problem = write_problem(tmp_path, RECURRENT, "recurrent")
    one, other = (instantiate(problem, seed=seed) for seed in (1, 2))
    make = reference_maker(problem_message(problem), "cpu", None)
    bound, wanted = make(one.arguments), one.reference()
    own = [weight.data_ptr() for weight, _ in bound.copied]
    assert len(own) == 8
    torch.testing.assert_close(bound(), wanted)
    torch.testing.assert_close(make(other.arguments)(), other.reference())
    bound.refresh()
    torch.testing.assert_close(bound(), wanted)
    assert [weight.data_ptr() for weight, _ in bound.copied] == own
    for weight in one.model.parameters():  # as new values before a timed call
        weight.mul_(2)
    bound.refresh()
    torch.testing.assert_close(bound(), one.reference())


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_recurrent_layers_are_timed_as_people_call_them(tmp_path: Path) -> None:
    compared = _compared(tmp_path, RECURRENT.replace("7, 3, 12, 16", "256, 64, 128, 256"))
    assert not compared.failed
    log = "".join(path.read_text() for path in tmp_path.rglob("runner-*.log"))
    assert "single contiguous chunk" not in log


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
