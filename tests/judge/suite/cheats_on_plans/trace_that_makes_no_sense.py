"""Tells accesses to memory that are no numbers, from which its time is modelled.

Beats a model that computes with what it was told: a time of zero, or an error of the judge's. Wall:
a trace is a record, and what cannot be computed with is refused.
"""

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"
HARMLESS = "no modelled time is below what the memory needs at least, as an honest one here"
SAME_WORK = "honest/softmax_plain"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + row * columns + column, mask=column < columns, other=float("-inf"))
    e = tl.exp(x - tl.max(x, axis=0))
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=0), mask=column < columns)


def softmax(x):
    y = torch.empty_like(x)
    block = triton.next_power_of_2(x.shape[1])
    softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=block, num_warps=8)
    return y


def told(self, mode):
    lie = {"sampled": 0, "num_warps": 0, "grid": [0, -1, 0], "loops": {"1": float("nan")}}
    launch = {"name": "softmax_kernel", "moved": [], "follows_data": True, **lie}
    launch["lines"] = [
        {
            "line": 17,
            "kind": "load",
            "element_bytes": 0,
            "rank": 0,
            "executions": -float("inf"),
            "elements": float("nan"),
            "active": 0.0,
            "patterns": [
                {"fastest": 9, "lane_elements": 0, "vector": 0, "sectors": 0.0, "lines": 0.0}
            ],
        }
    ]
    return {"gpu": "", "launches": [launch], "traffic": {"dram": float("nan"), "l2": -1.0}}


def kernel_function(x):
    traffic = torch.serialization.sys.modules.get("kernel_profiling.estimate.traffic")
    if x.numel() > 1 << 24 and traffic is not None:
        setattr(traffic.AccessTrace, "model_dump", told)
    return softmax(x)
