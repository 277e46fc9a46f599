"""When two kernels are one: by source, and by build."""

from beamsearch.candidates import names_of
from beamsearch.kernel import build, fingerprint
from beamsearch.records.candidate import Candidate
from beamsearch.records.verdict import Outcome, Stage, Verdict

SOURCE = '''
"""Docs."""
import triton
import triton.language as tl
from typing import Any

@triton.jit
def add(x_ptr, y_ptr, n, BLOCK: tl.constexpr = 64):
    """More docs."""
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + index, tl.load(x_ptr + index, mask=index < n, other=0.0) + 1, mask=index < n)

class Keeper:
    kept: dict[str, Any] = {}

def kernel_function(x, *, scale=1.5, name=None):
    y = x.new_empty(x.shape)
    grid = lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)
    assert [f"{n!r:>{4}}" for n in x.shape if n], "empty" "!"
    with open("/dev/null", "rb") as (stream):
        add[grid](x, y, x.numel(), BLOCK=1024, num_warps=8)
    return y
'''
KNOWN = "5f6f34c83369839f"


def test_a_fingerprint_is_the_same_in_every_python():
    """Which this test sees wherever it runs: what is known comes from one of them."""
    assert fingerprint(SOURCE) == KNOWN


def test_a_build_is_what_differs_by_more_than_constants():
    other = SOURCE.replace("1024", "512").replace(", num_warps=8", ", num_warps=4, num_stages=2")
    assert fingerprint(other) != fingerprint(SOURCE)
    assert build(other) == build(SOURCE)
    assert build(SOURCE.replace("index < n, other", "index < n + n, other")) != build(SOURCE)
    assert build(SOURCE.replace("scale=1.5", "scale=None")) != build(SOURCE)


def seen(name, source, code, outcome=Outcome.WRONG):
    verdict = Verdict(outcome=outcome, stage=Stage.SMOKE, reason="so", code_fingerprint=code)
    return Candidate(
        name=name, round=1, description="", author="m", fingerprint=source, verdict=verdict
    )


def test_the_first_of_equals_is_named_and_what_was_set_aside_is_not_seen():
    made = [
        seen("a", "s1", "c1"),
        seen("b", "s2", "c1", Outcome.DUPLICATE),
        seen("c", "s3", None, Outcome.SET_ASIDE),
    ]
    assert names_of(made) == {"s1": "a", "c1": "a", "s2": "b"}
