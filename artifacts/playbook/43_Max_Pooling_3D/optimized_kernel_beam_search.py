# Best kernel of a beam search on 43_Max_Pooling_3D (bfloat16): r2-w0-v1, 0.9548 ms.
# BLOCK 2048, num_warps 8 (answers latency_not_hidden, launch_bound, low_occupancy, narrow_access, register_spills, too_few_blocks)
'Max pooling in three dimensions: one lane computes one output from its window.'
import torch
import triton
import triton.language as tl


@triton.jit
def max_pool3d_kernel(x_ptr, y_ptr, total: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr, stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr, ROWS: tl.constexpr):
    program = tl.program_id(0)
    blocks = (out_w + BLOCK - 1) // BLOCK
    ow = program % blocks * BLOCK + tl.arange(0, BLOCK)[:, None]
    row = program // blocks * ROWS + tl.arange(0, ROWS)[None, :]
    oh = row % out_h
    od = row // out_h % out_d
    plane = row // (out_h * out_d)
    index = row * out_w + ow
    valid = (ow < out_w) & (row < (total + out_w - 1) // out_w)
    best = tl.full((BLOCK, ROWS), float('-inf'), dtype=tl.float32)
    for kd in tl.static_range(KERNEL_SIZE):
        d = od * stride - padding + kd * dilation
        for kh in tl.static_range(KERNEL_SIZE):
            h = oh * stride - padding + kh * dilation
            for kw in tl.static_range(KERNEL_SIZE):
                w = ow * stride - padding + kw * dilation
                inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                offset = ((plane.to(tl.int64) * D + d) * H + h) * W + w
                x = tl.load(x_ptr + (kd * dilation * H * W + kh * dilation * W + kw * dilation) + (plane.to(tl.int64) * D * H * W + (od * stride - padding) * H * W + (oh * stride - padding) * W + (ow * stride - padding)), mask=valid & inside, other=float('-inf'))
                best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, best.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, kernel_size, stride, padding, dilation):
    x = x.contiguous()
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = ((size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in (D, H, W))
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    total = y.numel()
    grid = lambda META: (triton.cdiv(out_w, META['BLOCK']) * triton.cdiv(C * N * out_d * out_h, META['ROWS']),)
    max_pool3d_kernel[grid](x, y, total, D, H, W, out_d, out_h, out_w, stride, padding, dilation, KERNEL_SIZE=kernel_size, BLOCK=min(triton.next_power_of_2(out_w), 2048), ROWS=8, num_warps=8)
    return y


if __name__ == "__main__":
    import torch

    if not torch.cuda.is_available():
        raise SystemExit("this kernel needs an NVIDIA GPU")
    output = kernel_function(
        x=torch.rand((16, 32, 128, 128, 128), dtype=torch.bfloat16, device="cuda"),
        kernel_size=3,
        stride=2,
        padding=1,
        dilation=3,
    )
    torch.cuda.synchronize()
    print(tuple(output.shape), output.dtype)
