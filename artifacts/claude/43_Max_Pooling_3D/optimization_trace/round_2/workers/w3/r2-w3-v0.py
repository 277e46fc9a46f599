"""Max pooling in three dimensions: depth chains, whole planes, rows in residue order, L2 policies on x and y."""

import torch
import triton
import triton.language as tl


@triton.jit
def _mx(a, b):
    # maximum of two packed bfloat16, NaN propagates
    return tl.inline_asm_elementwise(
        "max.NaN.bf16x2 $0, $1, $2;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _lo2(a, b):
    # (low half of a, low half of b)
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, 0x5410;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _hi2(a, b):
    # (high half of a, high half of b)
    return tl.inline_asm_elementwise(
        "prmt.b32 $0, $1, $2, 0x7632;", "=r,r,r", [a, b], dtype=tl.int32, is_pure=True, pack=1
    )


@triton.jit
def _load(p, wmask, MASKED: tl.constexpr, LP: tl.constexpr):
    if MASKED:
        v = tl.load(p, mask=wmask, other=0, eviction_policy=LP)
    else:
        v = tl.load(p, eviction_policy=LP)
    return v


@triton.jit
def _outer(xs, off_top, off_mid, off_bot, wmask,
           H: tl.constexpr, W2: tl.constexpr, MASKED: tl.constexpr, LP: tl.constexpr):
    # top and bottom rows of one plane: the odd rows, read twice
    a = _load(xs + off_top, wmask, MASKED, LP)
    if H % 2 == 0:
        pm = xs + off_mid
        c = _load(pm + 3 * W2, wmask, MASKED, LP)
    else:
        c = _load(xs + off_bot, wmask, MASKED, LP)
    return a, c


@triton.jit
def _finish(best, yrow, rmask, BH: tl.constexpr, NQ: tl.constexpr, OW2: tl.constexpr, SP: tl.constexpr):
    # word j of a row is (E[j], O[j]) = columns (2j, 2j+1); out[o] = max(O[o-1], E[o+1], O[o+2]).
    # Lane q holds words 4q..4q+3 and makes outputs 4q..4q+3.
    q = tl.arange(0, NQ)
    left = tl.broadcast_to(tl.maximum(q - 1, 0)[None, :], (BH, NQ))
    right = tl.broadcast_to(tl.minimum(q + 1, NQ - 1)[None, :], (BH, NQ))
    even, odd = tl.split(tl.reshape(best, (BH, NQ, 2, 2)))
    p0, p2 = tl.split(even)
    p1, p3 = tl.split(odd)
    l3 = tl.gather(p3, left, axis=1)
    r0 = tl.gather(p0, right, axis=1)
    r1 = tl.gather(p1, right, axis=1)
    # output 0 has no tap at column -1: repeat its tap at column 5
    l3 = tl.where((q == 0)[None, :], p2, l3)
    w0 = _mx(_mx(_hi2(l3, p0), _lo2(p1, p2)), _hi2(p2, p3))
    w1 = _mx(_mx(_hi2(p1, p2), _lo2(p3, r0)), _hi2(r0, r1))
    # exchange, so that lane q has output words q and NQ + q
    swap1 = tl.broadcast_to((q // 2 + (NQ // 2) * (q % 2))[None, :], (BH, NQ))
    swap2 = tl.broadcast_to((q // 2 + (NQ // 2) * (1 - q % 2))[None, :], (BH, NQ))
    lower = (q < NQ // 2)[None, :]
    is_even = (q % 2 == 0)[None, :]
    g1 = tl.gather(tl.where(lower, w0, w1), swap1, axis=1)
    g2 = tl.gather(tl.where(lower, w1, w0), swap2, axis=1)
    first = tl.where(is_even, g1, g2)
    second = tl.where(is_even, g2, g1)
    tl.store(yrow, first, mask=rmask & (q < OW2)[None, :], eviction_policy=SP)
    tl.store(yrow + NQ, second, mask=rmask & (q + NQ < OW2)[None, :], eviction_policy=SP)


@triton.autotune(
    configs=[
        triton.Config({"BH": 32, "RES": 0, "LP": "", "SP": ""}, num_warps=8, num_stages=1),
        triton.Config({"BH": 32, "RES": 0, "LP": "evict_first", "SP": ""}, num_warps=8, num_stages=1),
        triton.Config({"BH": 64, "RES": 0, "LP": "evict_first", "SP": ""}, num_warps=16, num_stages=1),
        triton.Config({"BH": 64, "RES": 1, "LP": "", "SP": ""}, num_warps=16, num_stages=1),
        triton.Config({"BH": 64, "RES": 1, "LP": "evict_first", "SP": ""}, num_warps=16, num_stages=1),
        triton.Config({"BH": 64, "RES": 1, "LP": "evict_first", "SP": "evict_last"}, num_warps=16, num_stages=1),
    ],
    key=["D", "H", "W"],
)
@triton.jit
def pool_chain_kernel(
    x_ptr, y_ptr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    BW2: tl.constexpr, BH: tl.constexpr, RES: tl.constexpr,
    LP: tl.constexpr, SP: tl.constexpr,
):
    W2: tl.constexpr = W // 2
    OW2: tl.constexpr = OW // 2
    NQ: tl.constexpr = BW2 // 4
    CH: tl.constexpr = (OH + 2) // 3
    NP: tl.constexpr = OH + RES * (3 * CH - OH)
    HT: tl.constexpr = (NP + BH - 1) // BH
    MASKED: tl.constexpr = W2 != BW2
    PLANE: tl.constexpr = H * W2

    pid = tl.program_id(0)
    ht = pid % HT
    r = (pid // HT) % 3
    plane = (pid // (3 * HT)).to(tl.int64)
    xp = x_ptr + plane * (D * PLANE)
    yp = y_ptr + plane * (OD * OH * OW2)

    w = tl.arange(0, BW2)
    q = tl.arange(0, NQ)
    pos = ht * BH + tl.arange(0, BH)
    if RES == 1:
        # rows 0, 3, 6, ..., then 1, 4, 7, ..., then 2, 5, 8, ...: the bottom row of a
        # position is the top row of the next one, and the three chains share no row
        oh = pos // CH + 3 * (pos % CH)
        live = (pos < 3 * CH) & (oh < OH)
    else:
        oh = pos
        live = pos < OH
    # the middle tap is always inside; a tap outside is replaced by the middle one
    mid = 2 * tl.minimum(oh, OH - 1) + 2
    top = tl.where(mid < 3, mid, mid - 3)
    bot = tl.where(mid + 3 < H, mid + 3, mid)
    off_top = top[:, None] * W2 + w[None, :]
    off_mid = mid[:, None] * W2 + w[None, :]
    off_bot = bot[:, None] * W2 + w[None, :]
    wmask = (w < W2)[None, :]
    rmask = live[:, None]
    off_out = oh[:, None] * OW2 + q[None, :]

    d0 = tl.where(r == 0, 2, 2 * r - 1)
    p0 = xp + d0 * PLANE
    c0, c2 = _outer(p0, off_top, off_mid, off_bot, wmask, H, W2, MASKED, LP)
    c1 = _load(p0 + off_mid, wmask, MASKED, LP)
    carry = _mx(_mx(c0, c1), c2)
    for od in range(r, OD, 3):
        da = 2 * od + 2
        db = da + 3
        if D % 2 == 1:
            db = tl.where(db < D, db, da)
        pa = xp + da * PLANE
        pb = xp + db * PLANE
        # rows read twice next to each other, rows read once last
        a0, a2 = _outer(pa, off_top, off_mid, off_bot, wmask, H, W2, MASKED, LP)
        b0, b2 = _outer(pb, off_top, off_mid, off_bot, wmask, H, W2, MASKED, LP)
        a1 = _load(pa + off_mid, wmask, MASKED, LP)
        b1 = _load(pb + off_mid, wmask, MASKED, LP)
        best = _mx(_mx(_mx(a0, a2), a1), carry)
        carry = _mx(_mx(b0, b2), b1)
        best = _mx(best, carry)
        _finish(best, yp + od * (OH * OW2) + off_out, rmask, BH, NQ, OW2, SP)


@triton.jit
def max_pool3d_kernel(
    x_ptr, y_ptr, total,
    D, H, W, out_d, out_h, out_w,
    stride, padding, dilation,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
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
                offset = ((plane.to(tl.int64) * D + d) * H + h) * W + w
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
        (kernel_size, stride, padding, dilation) == (3, 2, 1, 3)
        and x.dtype == torch.bfloat16
        and W % 8 == 0 and 64 <= W <= 256
        and D >= 5 and H >= 5
        and D * H * W < 2**31
        and x.storage_offset() % 2 == 0
        and x.data_ptr() % 4 == 0
    )
    if fast:
        planes = N * C
        padded = 3 * ((out_h + 2) // 3)
        grid = lambda meta: (
            planes * 3 * triton.cdiv(padded if meta["RES"] == 1 else out_h, meta["BH"]),
        )
        pool_chain_kernel[grid](
            x.view(torch.int32), y.view(torch.int32),
            D=D, H=H, W=W, OD=out_d, OH=out_h, OW=out_w,
            BW2=triton.next_power_of_2(W) // 2,
        )
        return y
    grid = (triton.cdiv(total, 1024),)
    max_pool3d_kernel[grid](
        x, y, total,
        D, H, W, out_d, out_h, out_w,
        stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=1024,
    )
    return y
