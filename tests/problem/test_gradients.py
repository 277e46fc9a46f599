"""A problem with its gradients: they are judged against autograd."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from beamsearch.errors import KernelError, ProblemError
from beamsearch.judge.runner.reference import problem_message, reference_maker
from beamsearch.judge.verification.oracle import run_oracle
from beamsearch.problem.instance import instantiate
from beamsearch.problem.kernel import bind
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem, load_module, read_problem
from tests.commands import beamsearch

PROBLEM = """
import torch

rows = 512
columns = 256

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(columns))
        self.unused = torch.nn.Parameter(torch.randn(3))

    def forward(self, x, keep):
        return torch.where(keep, torch.sin(x) * self.weight, 0.0)

def get_inputs():
    return [torch.randn(rows, columns), torch.rand(rows, columns) < 0.5]

def get_init_inputs():
    return []
"""
KERNEL = """
import torch
import triton
import triton.language as tl

@triton.jit
def forward_kernel(x_ptr, keep_ptr, w_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    k = tl.arange(0, BLOCK)
    inside = k < columns
    x = tl.load(x_ptr + row * columns + k, mask=inside, other=0.0)
    keep = tl.load(keep_ptr + row * columns + k, mask=inside, other=0) != 0
    w = tl.load(w_ptr + k, mask=inside, other=0.0)
    tl.store(y_ptr + row * columns + k, tl.where(keep, tl.sin(x) * w, 0.0), mask=inside)

@triton.jit
def backward_kernel(g_ptr, x_ptr, keep_ptr, w_ptr, gx_ptr, gw_ptr, rows, columns, R: tl.constexpr,
                    BLOCK: tl.constexpr):
    k = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    w = tl.load(w_ptr + k, mask=k < columns, other=0.0)[None, :]
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, rows, R):
        r = first + tl.arange(0, R)
        place = r[:, None] * columns + k[None, :]
        inside = (r[:, None] < rows) & (k[None, :] < columns)
        x = tl.load(x_ptr + place, mask=inside, other=0.0)
        keep = tl.load(keep_ptr + place, mask=inside, other=0) != 0
        g = tl.where(keep, tl.load(g_ptr + place, mask=inside, other=0.0), 0.0)
        tl.store(gx_ptr + place, g * w * SIGN tl.cos(x), mask=inside)
        total += tl.sum(g * tl.sin(x), axis=0)
    tl.store(gw_ptr + k, total, mask=k < columns)

def kernel_function(x, keep, weight):
    y = torch.empty_like(x)
    columns = x.shape[1]
    block = triton.next_power_of_2(columns)
    forward_kernel[(x.shape[0],)](x, keep, weight, y, columns, BLOCK=block)
    return y, ()

def backward_function(grad_outputs, inputs, outputs, saved):
    x, keep, weight = inputs["x"], inputs["keep"], inputs["weight"]
    gx, gw = torch.empty_like(x), torch.empty_like(weight)
    rows, columns = x.shape
    backward_kernel[(triton.cdiv(columns, 32),)](
        grad_outputs, x, keep, weight, gx, gw, rows, columns, R=32, BLOCK=32
    )
    return gx, gw
"""


@pytest.fixture
def problem(tmp_path: Path) -> Problem:
    path = tmp_path / "sines.py"
    path.write_text(PROBLEM)
    return read_problem(path).with_backward(True)


def by_hand(instance) -> list[torch.Tensor]:
    """Output and gradients, from the formula."""
    x, keep, given = instance.inputs
    weight = instance.model.weight
    kept = torch.where(keep, given, 0.0)
    return [
        torch.where(keep, x.sin() * weight, 0.0),
        kept * weight * x.cos(),
        (kept * x.sin()).sum(0),
    ]


def test_the_reference_gives_them_as_autograd_does(problem: Problem) -> None:
    instance = instantiate(problem, seed=5)
    assert instance.arguments.forward == ("x", "keep", "grad_output")
    for found in (instance.reference(), run_oracle(instance, instance.inputs, torch.float64)):
        for one, other in zip(found, by_hand(instance), strict=True):
            assert torch.allclose(one, other, atol=1e-4)
    assert not instance.model.weight.requires_grad, "and it is as it was"
    assert instance.has_gradient() == {"x": True, "weight": True, "unused": False}


@pytest.mark.slow
def test_baselines_compute_the_same_in_the_mode_that_a_runner_is_in(problem: Problem) -> None:
    instance = instantiate(problem, seed=5)
    for mode in (None, "default"):
        torch._dynamo.reset()
        make = reference_maker(problem_message(problem), "cpu", mode)
        with torch.inference_mode():
            values = {
                name: value.clone() if isinstance(value, torch.Tensor) else value
                for name, value in instance.arguments.values.items()
            }
            state = {name: value.clone() for name, value in instance.arguments.state.items()}
            found = make(replace(instance.arguments, values=values, state=state))()
        for one, other in zip(found, by_hand(instance), strict=True):
            assert torch.allclose(one, other, atol=1e-4)


def test_the_least_work_is_that_of_both(problem: Problem) -> None:
    alone, both = least_work(problem.with_backward(False)), least_work(problem)
    size = 512 * 256
    assert both.least_bytes - alone.least_bytes == 4 * (2 * size + 256)


@pytest.mark.slow
@pytest.mark.parametrize(("sign", "outcome"), [("", "correct"), ("-", "wrong")])
def test_a_kernel_is_judged_by_its_gradients(
    problem: Problem, tmp_path: Path, sign: str, outcome: str
) -> None:
    kernel = tmp_path / "kernel.py"
    kernel.write_text(KERNEL.replace("SIGN", sign))
    done = beamsearch(
        "verify", problem.path, kernel, "--backward", "--json", CUDA_VISIBLE_DEVICES=""
    )
    told = json.loads(done.stdout)
    assert told["verdict"] == outcome, told


def test_a_kernel_without_a_backward_is_told_what_it_lacks(problem: Problem) -> None:
    module = load_module(problem)
    module.kernel_function = lambda x, weight: x
    with pytest.raises(KernelError, match="backward_function"):
        bind(module, instantiate(problem).arguments)


def test_whole_numbers_have_no_gradient(tmp_path: Path) -> None:
    path = tmp_path / "signs.py"
    path.write_text(
        PROBLEM.replace("torch.where(keep, torch.sin(x) * self.weight, 0.0)", "(x > 0).long()")
    )
    with pytest.raises(ProblemError, match="^signs returns whole numbers"):
        instantiate(read_problem(path).with_backward(True))


def test_what_forward_draws_stays_an_input_beside_gradients(tmp_path: Path) -> None:
    path = tmp_path / "noisy.py"
    path.write_text(PROBLEM.replace("torch.sin(x)", "(torch.sin(x) + torch.randn_like(x))"))
    instance = instantiate(read_problem(path).with_backward(True), seed=5)
    assert instance.arguments.forward == ("x", "keep", "draw0", "grad_output")
    for one, other in zip(instance.reference(), instance.reference(), strict=True):
        assert torch.equal(one, other)
