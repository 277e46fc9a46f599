"""Max pooling in three dimensions: whole rows, two outputs of a D chain an iteration.

The chain od = r, r+3, r+6, ... shares one odd plane between successive outputs.  With SPLIT = 2
a chain is cut in the middle and two programs walk outward from the cut: both begin with the
plane that they share.  Two successive outputs of a walk share one W step: their row maxima are
packed into the two halves of each 32-bit word before the gathers along W.  The W step and the
stores of a pair wait until the loads of the next pair are under way.
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


@triton.jit
def pool_outward(
    x_ptr,  # int32: two bf16 a word
    y_ptr,  # bfloat16
    D: tl.constexpr, H: tl.constexpr, WW: tl.constexpr,
    OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    BH: tl.constexpr, SPLIT: tl.constexpr,
):
    OHB: tl.constexpr = (OH + BH - 1) // BH
    PLANE: tl.constexpr = H * WW

    pid = tl.program_id(0)
    ohb = pid % OHB
    rest = pid // OHB
    seg = rest % SPLIT
    rest = rest // SPLIT
    r = rest % 3
    nc = rest // 3

    # the chain has K outputs; walk 0 goes up from the (even) cut, walk 1 goes down from it
    K = (OD - r + 2) // 3
    cut = ((K * (SPLIT - 1)) // 4) * 2
    up = seg == 0
    sg = tl.where(up, 1, -1)
    first = r + 3 * tl.where(up, cut, cut - 1)
    count = tl.where(up, K - cut, cut)
    n = count // 2

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

    # output 0: index -1 is replaced by index 5 of the same window (high half of word 2)
    i0 = tl.broadcast_to(tl.where(j == 0, 2, j - 1)[None, :], (BH, WW))
    i1 = tl.broadcast_to(tl.minimum(j + 1, WW - 1)[None, :], (BH, WW))
    i2 = tl.broadcast_to(tl.minimum(j + 2, WW - 1)[None, :], (BH, WW))

    yo = oh[:, None] * OW + j[None, :]
    m = (oh < OH)[:, None] & (j < OW)[None, :]

    xb = x_ptr + nc.to(tl.int64) * (D * PLANE)
    yb = y_ptr + nc.to(tl.int64) * (OD * OH * OW)

    # the plane behind the first output: 2*(r + 3*cut) - 1 for both walks
    d = 2 * first + 2 - 3 * sg
    d = tl.where(d < 0, 2 * first + 2, d)
    # only programs without outputs need this
    d = tl.maximum(tl.minimum(d, D - 1), 0)
    p = xb + d * PLANE
    s0 = tl.load(p + o0)
    s1 = tl.load(p + o1)
    s2 = tl.load(p + o2)
    prev = mx(mx(s0, s1), s2)

    # no pair waits yet: what stands here is never stored
    hi = prev
    lo = prev

    for i in range(n):
        od = first + 6 * sg * i
        od2 = od + 3 * sg
        d0 = 2 * od + 2
        # the plane between two outputs of the walk is always inside x
        d1 = d0 + 3 * sg
        d2 = 2 * od2 + 2
        d3 = d2 + 3 * sg
        d3 = tl.where((d3 >= 0) & (d3 < D), d3, d2)
        p0 = xb + d0 * PLANE
        p1 = xb + d1 * PLANE
        p2 = xb + d2 * PLANE
        p3 = xb + d3 * PLANE
        a0 = tl.load(p0 + o0)
        a1 = tl.load(p0 + o1)
        a2 = tl.load(p0 + o2)
        b0 = tl.load(p1 + o0)
        b1 = tl.load(p1 + o1)
        b2 = tl.load(p1 + o2)
        c0 = tl.load(p2 + o0)
        c1 = tl.load(p2 + o1)
        c2 = tl.load(p2 + o2)
        e0 = tl.load(p3 + o0)
        e1 = tl.load(p3 + o1)
        e2 = tl.load(p3 + o2)

        # the pair of the step before, while the loads fly
        # out[k] = max(high(word[k-1]), low(word[k+1]), high(word[k+2]))
        g0 = tl.gather(hi, i0, 1)
        g1 = tl.gather(lo, i1, 1)
        g2 = tl.gather(hi, i2, 1)
        v = mx(mx(g0, g2), g1)
        ya = v.to(tl.int16).to(tl.bfloat16, bitcast=True)
        yc = (v >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
        ml = m & (i > 0)
        tl.store(yb + (od - 6 * sg) * (OH * OW) + yo, ya, mask=ml)
        tl.store(yb + (od - 3 * sg) * (OH * OW) + yo, yc, mask=ml)

        a = mx(mx(a0, a1), a2)
        b = mx(mx(b0, b1), b2)
        c = mx(mx(c0, c1), c2)
        e = mx(mx(e0, e1), e2)
        ta = mx(mx(prev, a), b)
        tb = mx(mx(b, c), e)
        prev = e

        # low halves belong to od, high halves to od2
        hi = hihi(ta, tb)
        lo = lolo(ta, tb)

    # the last pair
    f0 = tl.gather(hi, i0, 1)
    f1 = tl.gather(lo, i1, 1)
    f2 = tl.gather(hi, i2, 1)
    fv = mx(mx(f0, f2), f1)
    fa = fv.to(tl.int16).to(tl.bfloat16, bitcast=True)
    fc = (fv >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
    oda = first + 6 * sg * (n - 1)
    odc = oda + 3 * sg
    mf = m & (n > 0)
    tl.store(yb + oda * (OH * OW) + yo, fa, mask=mf)
    tl.store(yb + odc * (OH * OW) + yo, fc, mask=mf)

    # a walk of odd length: its last output alone
    if count % 2 == 1:
        odl = first + 3 * sg * (count - 1)
        dl0 = 2 * odl + 2
        dl1 = dl0 + 3 * sg
        dl1 = tl.where((dl1 >= 0) & (dl1 < D), dl1, dl0)
        q0 = xb + dl0 * PLANE
        q1 = xb + dl1 * PLANE
        k0 = tl.load(q0 + o0)
        k1 = tl.load(q0 + o1)
        k2 = tl.load(q0 + o2)
        l0 = tl.load(q1 + o0)
        l1 = tl.load(q1 + o1)
        l2 = tl.load(q1 + o2)
        ka = mx(mx(k0, k1), k2)
        la = mx(mx(l0, l1), l2)
        t = mx(mx(prev, ka), la)
        u0 = tl.gather(t, i0, 1)
        u1 = tl.gather(t, i1, 1)
        u2 = tl.gather(t, i2, 1)
        # high halves of words k-1 and k+2, low half of word k+1; the result is in the low half
        z = mx(mx(u0, u2) >> 16, u1)
        yl = z.to(tl.int16).to(tl.bfloat16, bitcast=True)
        tl.store(yb + odl * (OH * OW) + yo, yl, mask=m)


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
    reach = 2 * padding - dilation * (kernel_size - 1) - 1
    out_d = (D + reach) // stride + 1
    out_h = (H + reach) // stride + 1
    out_w = (W + reach) // stride + 1
    y = torch.empty((N, C, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    if N == 0 or C == 0 or out_d == 0 or out_h == 0 or out_w == 0:
        return y
    fast = (
        kernel_size == 3 and stride == 2 and padding == 1 and dilation == 3
        and x.dtype == torch.bfloat16
        and 32 <= W <= 128 and (W & (W - 1)) == 0
        and D >= 5 and H >= 5 and D * H * W < 2 ** 31
        and x.storage_offset() % 2 == 0 and x.data_ptr() % 16 == 0
    )
    if fast:
        pool_outward[(N * C * 3 * ((out_h + 15) // 16) * 2,)](
            x.view(torch.int32), y,
            D=D, H=H, WW=W // 2, OD=out_d, OH=out_h, OW=out_w,
            BH=16, SPLIT=2, num_warps=8, num_stages=1, maxnreg=80,
        )
    else:
        total = y.numel()
        grid = (triton.cdiv(total, 1024),)
        max_pool3d_kernel[grid](
            x, y, total,
            D, H, W, out_d, out_h, out_w,
            stride, padding, dilation,
            KERNEL_SIZE=kernel_size, BLOCK=1024,
        )
    return y
