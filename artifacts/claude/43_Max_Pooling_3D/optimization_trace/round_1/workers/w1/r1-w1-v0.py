"""Max pooling in three dimensions: whole rows, reduced by axis with packed bf16x2 maxima.

The fast kernel walks a chain od = r, r+3, r+6, ... so that plane 2*od+5 is carried over as the
first plane of od+3.  W is reduced last, from the four 32-bit words that a lane holds plus three
words of its neighbours.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def mx(a, b):
    return tl.inline_asm_elementwise(
        "max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b],
        dtype=tl.int32, is_pure=True, pack=1,
    )


@triton.jit
def hihi(a, b):
    # low half = high half of a, high half = high half of b
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", [a, b],
        dtype=tl.int32, is_pure=True, pack=1,
    )


@triton.jit
def lolo(a, b):
    # low half = low half of a, high half = low half of b
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [a, b],
        dtype=tl.int32, is_pure=True, pack=1,
    )


@triton.autotune(
    configs=[
        triton.Config({"BH": 16, "SEG": 21}, num_warps=4, num_stages=1),
        triton.Config({"BH": 16, "SEG": 11}, num_warps=4, num_stages=1),
        triton.Config({"BH": 16, "SEG": 7}, num_warps=4, num_stages=1),
        triton.Config({"BH": 32, "SEG": 21}, num_warps=8, num_stages=1),
    ],
    key=["D", "H", "WW"],
)
@triton.jit
def pool_fast(
    x_ptr, y_ptr,  # both int32: two bf16 a word
    D: tl.constexpr, H: tl.constexpr, WW: tl.constexpr,
    OD: tl.constexpr, OH: tl.constexpr, OWW: tl.constexpr,
    BH: tl.constexpr, SEG: tl.constexpr,
):
    OHB: tl.constexpr = (OH + BH - 1) // BH
    NSEG: tl.constexpr = ((OD + 2) // 3 + SEG - 1) // SEG
    PLANE: tl.constexpr = H * WW
    Q: tl.constexpr = WW // 4

    pid = tl.program_id(0)
    ohb = pid % OHB
    rest = pid // OHB
    r = rest % 3
    rest = rest // 3
    seg = rest % NSEG
    nc = rest // NSEG

    od0 = r + 3 * SEG * seg
    n = tl.minimum((OD - od0 + 2) // 3, SEG)

    oh = ohb * BH + tl.arange(0, BH)
    # rows past the end repeat the last one: every load is inside x, none needs a mask
    ohc = tl.minimum(oh, OH - 1)
    h1 = 2 * ohc + 2
    h0 = tl.where(ohc == 0, h1, 2 * ohc - 1)
    h2 = 2 * ohc + 5
    h2 = tl.where(h2 < H, h2, h1)
    j = tl.arange(0, WW)
    o0 = h0[:, None] * WW + j[None, :]
    o1 = h1[:, None] * WW + j[None, :]
    o2 = h2[:, None] * WW + j[None, :]

    q = tl.arange(0, Q)
    iprev = tl.broadcast_to(tl.maximum(q - 1, 0)[None, :], (BH, Q))
    inext = tl.broadcast_to(tl.minimum(q + 1, Q - 1)[None, :], (BH, Q))
    first = (q == 0)[None, :]

    yo = oh[:, None] * OWW + 2 * q[None, :]
    rm = (oh < OH)[:, None]
    ma = rm & (2 * q < OWW)[None, :]
    mb = rm & (2 * q + 1 < OWW)[None, :]

    xb = x_ptr + nc.to(tl.int64) * (D * PLANE)
    yb = y_ptr + nc.to(tl.int64) * (OD * OH * OWW)

    d = tl.where(od0 == 0, 2, 2 * od0 - 1)
    d = tl.minimum(d, D - 1)
    p = xb + d * PLANE
    s0 = tl.load(p + o0)
    s1 = tl.load(p + o1)
    s2 = tl.load(p + o2)
    prev = mx(mx(s0, s1), s2)

    for i in range(n):
        od = od0 + 3 * i
        de = 2 * od + 2
        dl = 2 * od + 5
        dl = tl.where(dl < D, dl, de)
        pe = xb + de * PLANE
        po = xb + dl * PLANE
        e0 = tl.load(pe + o0)
        e1 = tl.load(pe + o1)
        e2 = tl.load(pe + o2)
        c0 = tl.load(po + o0)
        c1 = tl.load(po + o1)
        c2 = tl.load(po + o2)
        e = mx(mx(e0, e1), e2)
        cur = mx(mx(c0, c1), c2)
        t = mx(mx(prev, e), cur)
        prev = cur

        # words 4q .. 4q+3 of a row, each its own tensor of the same lane
        even, odd = tl.split(tl.reshape(t, (BH, Q, 2, 2)))
        a0, a2 = tl.split(even)
        a1, a3 = tl.split(odd)
        p3 = tl.gather(a3, iprev, 1)
        n0 = tl.gather(a0, inext, 1)
        n1 = tl.gather(a1, inext, 1)
        # output 0: index -1 is replaced by index 5 of the same window
        p3 = tl.where(first, a2, p3)

        # out[k] = max(high(word[k-1]), low(word[k+1]), high(word[k+2]))
        mid = hihi(a2, a3)
        w01 = mx(mx(hihi(p3, a0), lolo(a1, a2)), mid)
        w23 = mx(mx(hihi(a1, a2), lolo(a3, n0)), hihi(n0, n1))

        py = yb + od * (OH * OWW)
        tl.store(py + yo, w01, mask=ma)
        tl.store(py + (yo + 1), w23, mask=mb)


@triton.jit
def max_pool3d_kernel(
    x_ptr, y_ptr, total,
    D, H, W, out_d, out_h, out_w,
    stride, padding, dilation,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = index < total
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = (index // (out_w * out_h)) % out_d
    plane = index // (out_w * out_h * out_d)

    best = tl.full((BLOCK,), float("-inf"), dtype=tl.float32)
    for kd in range(KERNEL_SIZE):
        d = od * stride - padding + kd * dilation
        for kh in range(KERNEL_SIZE):
            h = oh * stride - padding + kh * dilation
            for kw in range(KERNEL_SIZE):
                w = ow * stride - padding + kw * dilation
                inside = (d >= 0) & (d < D) & (h >= 0) & (h < H) & (w >= 0) & (w < W)
                offset = ((plane * D + d) * H + h) * W + w
                x = tl.load(x_ptr + offset, mask=valid & inside, other=float("-inf"))
                best = tl.maximum(best, x.to(tl.float32), propagate_nan=tl.PropagateNan.ALL)
    tl.store(y_ptr + index, best.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, kernel_size, stride, padding, dilation):
    x = x.contiguous()
    N, C, D, H, W = x.shape
    out_d, out_h, out_w = (
        (size + 2 * padding - dilation * (kernel_size - 1) - 1) // stride + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    total = y.numel()
    fast = (
        kernel_size == 3 and stride == 2 and padding == 1 and dilation == 3
        and x.dtype == torch.bfloat16
        and 32 <= W <= 512 and (W & (W - 1)) == 0
        and D >= 5 and H >= 5 and D * H * W < 2 ** 31
        and x.storage_offset() % 2 == 0 and x.data_ptr() % 16 == 0
    )
    if fast:
        grid = lambda meta: (
            N * C * 3
            * triton.cdiv(out_h, meta["BH"])
            * triton.cdiv(triton.cdiv(out_d, 3), meta["SEG"]),
        )
        pool_fast[grid](
            x.view(torch.int32), y.view(torch.int32),
            D=D, H=H, WW=W // 2, OD=out_d, OH=out_h, OWW=out_w // 2,
        )
    else:
        grid = (triton.cdiv(total, 1024),)
        max_pool3d_kernel[grid](
            x, y, total,
            D, H, W, out_d, out_h, out_w,
            stride, padding, dilation,
            KERNEL_SIZE=kernel_size, BLOCK=1024,
        )
    return y
