"""What no plan can hold, or does not hold in each call, is refused before there is any GPU."""

from __future__ import annotations

import pytest

from beamsearch.records.verdict import Outcome
from tests.judge.capture.conftest import (
    HOST,
    LAUNCH,
    WITH_WORK,
    Capture,
    before_call,
    changed,
    working_with,
)

REFUSED = {
    "item": ("    x.sum().item()  # here", "reads a tensor's values on the host"),
    "a condition": ("    assert bias[0] is None or bool(bias[0])  # here", "on the host"),
    "to a list": ("    bias.tolist()  # here", "on the host"),
    "to the host": ("    bias.cpu()  # here", "copies a tensor to the cpu"),
    "nonzero": ("    bias.nonzero()  # here", "on the host"),
    "matmul": ("    torch.matmul(x, x.t())  # here", "is library compute"),
    "softmax": ("    torch.softmax(x, 1)  # here", "is library compute"),
    "sort": ("    torch.sort(x)  # here", "is library compute"),
    "through out": ("    torch.add(x, x, out=y)  # here", "writes through `out`"),
    "another stream": (
        "    with torch.cuda.stream(torch.cuda.Stream()):  # here\n        pass",
        "leaves the current stream",
    ),
    "a graph": ("    torch.cuda.CUDAGraph()  # here", "makes a CUDA graph of its own"),
    "an event": ("    torch.cuda.Event()  # here", "takes times or waits"),
    "random numbers": ("    torch.rand_like(x)  # here", "rand_like is library compute"),
    "random numbers in place": ("    y.normal_()  # here", "normal_ is library compute"),
    "random numbers on the GPU": (
        "    torch.randn(4, device=x.device)  # here",
        "randn is library compute",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_plan_can_hold_is_refused_with_its_line(capture: Capture, name: str) -> None:
    lines, reason = REFUSED[name]
    source = before_call(lines + "\n")
    (number,) = [n for n, line in enumerate(source.splitlines(), 1) if line.endswith("# here")]
    rejection = capture(source).rejection
    assert rejection is not None
    assert rejection.outcome is Outcome.DISALLOWED, rejection
    assert reason in rejection.reason
    assert f"(line {number})" in rejection.reason


def test_an_address_as_a_number_is_refused_with_its_line(capture: Capture) -> None:
    source = working_with("    work = bias.data_ptr()\n")
    number = source.splitlines().index(LAUNCH.replace("y, x.", "y, work, x.").rstrip()) + 1
    rejection = capture(source).rejection
    assert rejection is not None
    assert rejection.outcome is Outcome.DISALLOWED
    assert "an address as a number; pass the tensor" in rejection.reason
    assert f"(line {number})" in rejection.reason


GLUON = """
import torch
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def copy_kernel(x_ptr, y_ptr, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([1], [32], [4], [0])
    at = gl.program_id(0) * BLOCK + gl.arange(0, BLOCK, layout=layout)
    gl.store(y_ptr + at, gl.load(x_ptr + at))


def kernel_function(x, bias):
    y = torch.empty_like(x)
    copy_kernel[(x.numel() // 1024,)](x, y, BLOCK=1024)
    return y
"""
OTHERWISE_REFUSED = {
    "Gluon": (GLUON, "is written in Gluon"),
    "a result that is kept": (
        changed((HOST, "    y = KEPT.setdefault('y', torch.empty_like(x))\n"), WITH_WORK[2]),
        "returns memory that it keeps between calls",
    ),
    "a result of the first call": (
        changed(
            (HOST, "    if 'y' in KEPT:\n        return KEPT['y']\n" + HOST),
            ("    return y\n", "    KEPT['y'] = y\n    return y\n"),
            WITH_WORK[2],
        ),
        "uses tensors that an earlier call was given",
    ),
    "an input of the first call": (
        working_with("    work = KEPT.setdefault('x', x)\n"),
        "uses tensors that an earlier call was given",
    ),
    "a tensor of the host": (before_call("    return torch.ones(4)\n"), "a tensor on the host"),
    "no tensor": (before_call("    return 7\n"), "returns a int"),
    "no launch": (changed((LAUNCH, "")), "no Triton kernel is launched"),
    "turns": (
        changed(
            (HOST, HOST + "    KEPT['n'] = KEPT.get('n', 0) + 1\n"),
            ("x.shape[1], BLOCK", "x.shape[1] - KEPT['n'] % 2, BLOCK"),
            WITH_WORK[2],
        ),
        "does not do the same in each call: step 0 (scale_kernel)",
    ),
    "more steps in every other call": (
        changed(
            (HOST, HOST + "    KEPT['n'] = KEPT.get('n', 0) + 1\n"),
            (LAUNCH, f"    for _ in range(1 + KEPT['n'] % 2):\n    {LAUNCH}"),
            WITH_WORK[2],
        ),
        "steps in one call",
    ),
    "random numbers of the host": (
        working_with("    work = torch.rand(4).to(x.device)\n"),
        "does not do the same in each call",
    ),
}


@pytest.mark.parametrize("name", OTHERWISE_REFUSED)
def test_what_a_call_must_not_depend_on_is_refused(capture: Capture, name: str) -> None:
    source, reason = OTHERWISE_REFUSED[name]
    found = capture(source)
    assert found.rejection is not None
    assert found.rejection.outcome is Outcome.DISALLOWED, found.rejection
    assert reason in found.rejection.reason
    assert not found.forms
