"""What a source's text tells of its kernels."""

from beamsearch.judge.sources import triton_kernels

SOURCE = """
import triton
from numba import njit as other
from triton import jit as kernel
from triton.runtime.jit import JITFunction

@kernel
def renamed(): pass

@triton.autotune(configs=[], key=[])
@triton.jit(debug=True)
def tuned(): pass

def called(): pass
def configured(): pass
def made(): pass
def helper(): pass

@other
def foreign(): pass

kernels = triton.jit(called), triton.jit(debug=True)(configured), JITFunction(made)
"""


def test_kernels_are_found_however_they_are_handed_to_triton() -> None:
    assert triton_kernels(SOURCE) == {"renamed", "tuned", "called", "configured", "made"}
