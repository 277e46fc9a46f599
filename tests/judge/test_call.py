"""What is told of a profiled call beside its profile."""

import triton

from beamsearch.judge.call import autotuners
from beamsearch.judge.harness import load_kernel

SOURCE = """
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": 128}, num_warps=2), triton.Config({"BLOCK": 256}, num_warps=8)]


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.heuristics({"EVEN": lambda arguments: arguments["n"] % 2 == 0})
@triton.jit
def copy_kernel(x, y, n, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.autotune(configs=CONFIGS, key=["n"])
@triton.jit
def never_called(x, n, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 0)


wrapped = triton.heuristics({"EVEN": lambda arguments: True})(copy_kernel)
"""


def test_an_autotuners_choice_is_named_by_its_kernel(tmp_path):
    path = tmp_path / "kernel.py"
    path.write_text(SOURCE)
    module = load_kernel(str(path))
    assert autotuners(module) == {}  # nothing was chosen yet
    module.copy_kernel.best_config = module.CONFIGS[1]
    found = autotuners(module)
    assert set(found) == {"copy_kernel"}
    assert "BLOCK: 256" in str(found["copy_kernel"].best_config)
    assert isinstance(module.wrapped, triton.runtime.autotuner.Heuristics)
    del module.copy_kernel
    assert set(autotuners(module)) == {"copy_kernel"}  # found within what wraps it
