"""Host descriptors whose blocks a configuration's pre_hook sets; the result is stored by one."""

import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

PROBLEM = "linear_bfloat16"


def set_blocks(named):
    named["x_desc"].block_shape = [named["BM"], named["BK"]]
    named["w_desc"].block_shape = [named["BN"], named["BK"]]
    named["y_desc"].block_shape = [named["BM"], named["BN"]]


@triton.autotune(
    [
        triton.Config(
            {"BM": 128, "BN": 128, "BK": 64}, num_warps=8, num_stages=3, pre_hook=set_blocks
        ),
        triton.Config(
            {"BM": 128, "BN": 64, "BK": 64}, num_warps=4, num_stages=4, pre_hook=set_blocks
        ),
    ],
    key=["K"],
)
@triton.jit
def linear_kernel(x_desc, w_desc, y_desc, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    row, column = tl.program_id(0) * BM, tl.program_id(1) * BN
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        acc = tl.dot(x_desc.load([row, start]), w_desc.load([column, start]).T, acc)
    y_desc.store([row, column], acc.to(y_desc.dtype))


def whole_rows(x):
    """A copy whose rows are a multiple of 16 bytes, as descriptors ask."""
    padded = x.new_zeros((x.shape[0], triton.cdiv(x.shape[1], 8) * 8))
    padded[:, : x.shape[1]].copy_(x)
    return padded


def kernel_function(x, weight):
    M, N = x.shape[0], weight.shape[0]
    if x.shape[1] % 8:
        x, weight = whole_rows(x), whole_rows(weight)
    y = x.new_empty((M, triton.cdiv(N, 8) * 8))
    descriptors = [TensorDescriptor.from_tensor(t, [1, 1]) for t in (x, weight, y)]
    linear_kernel[lambda meta: (triton.cdiv(M, meta["BM"]), triton.cdiv(N, meta["BN"]))](
        *descriptors, x.shape[1]
    )
    return y if y.shape[1] == N else y[:, :N]
