"""Max pooling in three dimensions: whole rows, two outputs of a D chain an iteration.

The chain od = r, r+3, r+6, ... carries plane 2*od+5 over as the first plane of od+3.  Two
successive outputs of the chain share one W step: their row maxima are packed into the two
halves of each 32-bit word before the gathers along W.  A chain of odd length makes its first
output alone, together with the plane that starts the chain; what follows are whole pairs.
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
        triton.Config({"BH": 16, "SEG": 11}, num_warps=8, num_stages=1),
    ],
    key=["D", "H", "WW"],
)
@triton.jit
def pool_pairs_odd_first(
    x_ptr,  # int32: two bf16 a word
    y_ptr,  # bfloat16
    D: tl.constexpr, H: tl.constexpr, WW: tl.constexpr,
    OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    BH: tl.constexpr, SEG: tl.constexpr,
):
    OHB: tl.constexpr = (OH + BH - 1) // BH
    NSEG: tl.constexpr = ((OD + 5) // 6 + SEG - 1) // SEG
    PLANE: tl.constexpr = H * WW
    OPLANE: tl.constexpr = OH * OW

    pid = tl.program_id(0)
    ohb = pid % OHB
    rest = pid // OHB
    r = rest % 3
    rest = rest // 3
    seg = rest % NSEG
    nc = rest // NSEG

    # a segment is up to 2 * SEG outputs od0, od0 + 3, ...
    od0 = r + 6 * SEG * seg
    count = tl.minimum((OD - od0 + 2) // 3, 2 * SEG)
    odd = count % 2
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
    yb = y_ptr + nc.to(tl.int64) * (OD * OPLANE)

    # the plane before the first output; programs without outputs need the minimum
    d = tl.where(od0 == 0, 2, 2 * od0 - 1)
    d = tl.minimum(d, D - 1)
    ps = xb + d * PLANE

    if odd == 1:
        da = 2 * od0 + 2
        db = 2 * od0 + 5
        db = tl.where(db < D, db, da)
        pa = xb + da * PLANE
        pb = xb + db * PLANE
        f0 = tl.load(ps + o0)
        f1 = tl.load(ps + o1)
        f2 = tl.load(ps + o2)
        k0 = tl.load(pa + o0)
        k1 = tl.load(pa + o1)
        k2 = tl.load(pa + o2)
        l0 = tl.load(pb + o0)
        l1 = tl.load(pb + o1)
        l2 = tl.load(pb + o2)
        f = mx(mx(f0, f1), f2)
        k = mx(mx(k0, k1), k2)
        prev = mx(mx(l0, l1), l2)
        t = mx(mx(f, k), prev)
        # one output: the low half of the result
        w0 = tl.gather(t, i0, 1)
        w1 = tl.gather(t, i1, 1)
        w2 = tl.gather(t, i2, 1)
        w = mx(mx(w0, w2) >> 16, w1)
        yw = w.to(tl.int16).to(tl.bfloat16, bitcast=True)
        tl.store(yb + od0 * OPLANE + yo, yw, mask=m)
    else:
        s0 = tl.load(ps + o0)
        s1 = tl.load(ps + o1)
        s2 = tl.load(ps + o2)
        prev = mx(mx(s0, s1), s2)

    od1 = od0 + 3 * odd
    for i in range(n):
        od = od1 + 6 * i
        p = xb + (2 * od + 2) * PLANE
        q0 = p + o0
        q1 = p + o1
        q2 = p + o2
        a0 = tl.load(q0)
        a1 = tl.load(q1)
        a2 = tl.load(q2)
        b0 = tl.load(q0 + 3 * PLANE)
        b1 = tl.load(q1 + 3 * PLANE)
        b2 = tl.load(q2 + 3 * PLANE)
        c0 = tl.load(q0 + 6 * PLANE)
        c1 = tl.load(q1 + 6 * PLANE)
        c2 = tl.load(q2 + 6 * PLANE)
        if D % 2 == 0:
            # the last plane of od + 3 is 2 * od + 11 <= D - 1
            e0 = tl.load(q0 + 9 * PLANE)
            e1 = tl.load(q1 + 9 * PLANE)
            e2 = tl.load(q2 + 9 * PLANE)
        else:
            # plane D is outside: the plane before it in the window stands in
            pe = p + tl.where(2 * od + 11 < D, 9, 6) * PLANE
            e0 = tl.load(pe + o0)
            e1 = tl.load(pe + o1)
            e2 = tl.load(pe + o2)
        a = mx(mx(a0, a1), a2)
        b = mx(mx(b0, b1), b2)
        c = mx(mx(c0, c1), c2)
        e = mx(mx(e0, e1), e2)
        ta = mx(mx(prev, a), b)
        tb = mx(mx(b, c), e)
        prev = e

        # low halves belong to od, high halves to od + 3
        hi = hihi(ta, tb)
        lo = lolo(ta, tb)
        # out[k] = max(high(word[k-1]), low(word[k+1]), high(word[k+2]))
        g0 = tl.gather(hi, i0, 1)
        g1 = tl.gather(lo, i1, 1)
        g2 = tl.gather(hi, i2, 1)
        v = mx(mx(g0, g2), g1)

        ya = v.to(tl.int16).to(tl.bfloat16, bitcast=True)
        yc = (v >> 16).to(tl.int16).to(tl.bfloat16, bitcast=True)
        yp = yb + od * OPLANE + yo
        tl.store(yp, ya, mask=m)
        tl.store(yp + 3 * OPLANE, yc, mask=m)


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
    if total == 0:
        return y
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
            * triton.cdiv(triton.cdiv(out_d, 6), meta["SEG"]),
        )
        pool_pairs_odd_first[grid](
            x.view(torch.int32), y,
            D=D, H=H, WW=W // 2, OD=out_d, OH=out_h, OW=out_w,
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
