"""A float32 convolution with operands in bfloat16, coarser than PyTorch's own TF32."""

import torch
import triton
import triton.language as tl

PROBLEM = "conv_float32"


@triton.jit
def conv_kernel(
    x_ptr,
    w_ptr,
    b_ptr,
    y_ptr,
    total,
    C,
    H,
    W,
    K,
    OH,
    OW,
    R: tl.constexpr,
    BM: tl.constexpr,
    BC: tl.constexpr,
    BK: tl.constexpr,
):
    m = tl.program_id(0) * BM + tl.arange(0, BM)
    n, oh, ow = m // (OH * OW), m // OW % OH, m % OW
    c, k = tl.arange(0, BC), tl.arange(0, BK)
    acc = tl.zeros((BM, BK), dtype=tl.float32)
    for tap in range(R * R):
        r, s = tap // R, tap % R
        at = ((n * C) * H + oh + r) * W + ow + s
        x_mask = (m[:, None] < total) & (c[None, :] < C)
        x = tl.load(x_ptr + at[:, None] + c[None, :] * H * W, mask=x_mask, other=0.0)
        w_at = (k[None, :] * C + c[:, None]) * R * R + tap
        w = tl.load(w_ptr + w_at, mask=(c[:, None] < C) & (k[None, :] < K), other=0.0)
        acc = tl.dot(x.to(tl.bfloat16), w.to(tl.bfloat16), acc)
    acc += tl.load(b_ptr + k, mask=k < K, other=0.0)[None, :]
    y_at = ((n[:, None] * K + k[None, :]) * OH + oh[:, None]) * OW + ow[:, None]
    tl.store(y_ptr + y_at, acc, mask=(m[:, None] < total) & (k[None, :] < K))


def kernel_function(x, weight, bias):
    N, C, H, W = x.shape
    K, _, R, _ = weight.shape
    OH, OW = H - R + 1, W - R + 1
    y = torch.empty((N, K, OH, OW), dtype=x.dtype, device=x.device)
    total = N * OH * OW
    BC, BK = max(16, triton.next_power_of_2(C)), max(16, triton.next_power_of_2(K))
    grid = (triton.cdiv(total, 64),)
    conv_kernel[grid](x, weight, bias, y, total, C, H, W, K, OH, OW, R=R, BM=64, BC=BC, BK=BK)
    return y
