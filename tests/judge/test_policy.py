"""What is refused unseen, and above all what is not."""

from __future__ import annotations

import pytest

from beamsearch.judge.policy import disallowed, doubts

HEAD = """import math
import os
import sys
import threading

import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl

"""

HONEST = {
    "imports and settings": "torch.backends.cudnn.allow_tf32 = True\nx = os.environ.get('A')",
    "a matrix product in Triton": "@triton.jit\ndef k(a, b):\n    return a @ b.matmul(a)",
    "tables on the host": "def f(n):\n    return torch.arange(8) @ torch.ones(8).long()",
    "a table from a shape": "def f(x):\n    return torch.mv(torch.ones(x.shape), torch.ones(4))",
    "weights moved": "def f(w):\n    return F.pad(w.permute(1, 0), (0, 1)).contiguous().to('cpu')",
    "a small remainder": "def f(x):\n    y = torch.empty(4)\n    return y.sum(0).to(x.dtype)",
    "a name that is another's": "def f(open, signal):\n    return open(signal.signal())",
    "a name bound twice": "F = make()\ndef f(x):\n    return F.softmax(x)",
    "a layer that holds weights": (
        "class ModelNew(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.conv = nn.Conv2d(1, 1, 3)\n"
        "    def forward(self, x):\n        return launch(x, self.conv.weight)"
    ),
    "its own attributes": "def f(x):\n    f.calls = 1\n    x.cache = {}\n    setattr(f, 'a', 1)",
    "its own module": "this = sys.modules[__name__]",
    "a lock": "lock = threading.Lock()",
    "the current stream": "def f(x):\n    return torch.cuda.current_stream().cuda_stream",
    "a dtype by name": "def f(x):\n    return getattr(torch, 'bfloat16'), math.inf",
    "a method called eval": "def f(model):\n    return model.eval().compile()",
}


@pytest.mark.parametrize("name", HONEST)
def test_honest_source_is_not_refused(name: str) -> None:
    assert disallowed(HEAD + HONEST[name]) is None


REFUSED = {
    "torch.matmul": "def f(x, w):\n    y = x.contiguous()\n    return torch.matmul(y, w)",
    "torch.Tensor.softmax": "def f(x):\n    return x.view(-1).softmax(0)",
    "@": "def f(x, w):\n    return x @ w.T",
    "torch.nn.functional.conv2d": "from torch.nn.functional import conv2d as c\n"
    "def f(x, w):\n    return c(x, w)",
    "torch.bmm": "lib = torch\ndef f(x, w):\n    return getattr(lib, 'b' + 'mm')(x, w)",
    "torch.einsum": "def f(x):\n    return vars(torch)['einsum']('ij->ji', x)",
    "torch.ops.aten.mm": "def f(x):\n    return torch.ops.aten.mm(x, x)",
    "the layer": "class ModelNew(nn.Module):\n    def __init__(self):\n"
    "        self.conv = nn.Conv2d(1, 1, 3)\n"
    "    def forward(self, x):\n        return self.conv(x)",
    "torch.compile": "@torch.compile\ndef f(x):\n    return x",
    "torch.cuda.Stream": "def f(x):\n    s = torch.cuda.Stream()",
    "sys._getframe": "def f(x):\n    return sys._getframe(1)",
    "f_back": "def f(error):\n    return error.frame.f_back",
    "sys.modules": "def f(x):\n    return sys.modules['numpy']",
    "open": "def f(x):\n    return open('/proc/self/mem').read()",
    "subprocess.run": "import subprocess\nsubprocess.run(['true'])",
    "os._exit": "from os import _exit as leave\nleave(0)",
    "torch.cuda.Event.elapsed_time": "torch.cuda.Event.elapsed_time = lambda *a: 1e-3",
    "torch.allclose": "setattr(torch.testing, 'x', 1)\ntorch.allclose = max",
    "plain": "class Lazy(torch.Tensor):\n    pass",
    "exec": "exec('x = 1')",
    "threading.Thread": "threading.Thread(target=print).start()",
    "a name it computes": "import importlib\ndef f(x):\n    return importlib.import_module(x)",
    "beamsearch.judge": "__import__('beam' + 'search.judge')",
}


@pytest.mark.parametrize("what", REFUSED)
def test_certain_cheats_are_refused_with_line_and_advice(what: str) -> None:
    reason = disallowed(HEAD + REFUSED[what])
    assert reason is not None
    assert what in reason
    lines = len((HEAD + REFUSED[what]).splitlines())
    assert any(f"line {line} " in reason for line in range(11, lines + 1))


def test_what_the_time_decides_is_only_told() -> None:
    source = HEAD + "def f(x, name):\n    y = x.sum(1)\n    return getattr(torch, name)(y)"
    assert disallowed(source) is None
    assert len(doubts(source)) == 2
