"""What prompts say of tensor descriptors: where an offset along the last dimension may be."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def load(description, out, row, column):
    tile = description.load([row, column])
    tl.store(out + tl.arange(0, 8)[:, None] * 32 + tl.arange(0, 32)[None, :], tile)


x = torch.randn(16, 256, device="cuda").to(getattr(torch, sys.argv[1]))
row, column = map(int, sys.argv[2:])
out = torch.empty(8, 32, device="cuda", dtype=x.dtype)
load[(1,)](TensorDescriptor(x, x.shape, x.stride(), [8, 32]), out, row, column)
torch.cuda.synchronize()
around = torch.nn.functional.pad(x, (64, 64, 16, 16))
want = around[16 + row : 24 + row, 64 + column : 96 + column]
print("right" if torch.equal(out, want) else "wrong")
"""


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("dtype", "row", "column", "told"),
    [
        ("float32", 3, 4, "right"),
        ("float32", -3, -8, "right"),
        ("bfloat16", 3, 8, "right"),
        ("float32", 3, 1, "illegal instruction"),
        ("bfloat16", 3, 4, "illegal instruction"),
    ],
)
def test_it_is_a_multiple_of_16_bytes(dtype, row, column, told, tmp_path):
    program = tmp_path / "load.py"
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), dtype, str(row), str(column)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert told in done.stdout + done.stderr
