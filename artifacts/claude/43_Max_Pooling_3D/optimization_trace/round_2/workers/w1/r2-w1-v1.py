"""Max pooling in three dimensions: depth chains, packed pairs, a cache policy for each tap row."""

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
def _load_once(addr, HINT: tl.constexpr):
    # 16 bytes of a row that is read once in the whole launch: not kept in L1, first to leave L2
    if HINT:
        v0, v1, v2, v3 = tl.inline_asm_elementwise(
            """
            {
                .reg .b64 pol;
                createpolicy.fractional.L2::evict_first.b64 pol, 1.0;
                ld.global.nc.L1::no_allocate.L2::cache_hint.v4.b32 {$0, $1, $2, $3}, [$4], pol;
            }
            """,
            "=r,=r,=r,=r,l", [addr],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
        )
    else:
        v0, v1, v2, v3 = tl.inline_asm_elementwise(
            "ld.global.nc.L1::no_allocate.v4.b32 {$0, $1, $2, $3}, [$4];",
            "=r,=r,=r,=r,l", [addr],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
        )
    return v0, v1, v2, v3


@triton.jit
def _load_twice(addr, HINT: tl.constexpr):
    # 16 bytes of a row that another warp of the program reads too: kept in L1, first to leave L2
    if HINT:
        v0, v1, v2, v3 = tl.inline_asm_elementwise(
            """
            {
                .reg .b64 pol;
                createpolicy.fractional.L2::evict_first.b64 pol, 1.0;
                ld.global.nc.L2::cache_hint.v4.b32 {$0, $1, $2, $3}, [$4], pol;
            }
            """,
            "=r,=r,=r,=r,l", [addr],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
        )
    else:
        v0, v1, v2, v3 = tl.inline_asm_elementwise(
            "ld.global.nc.v4.b32 {$0, $1, $2, $3}, [$4];",
            "=r,=r,=r,=r,l", [addr],
            dtype=(tl.int32, tl.int32, tl.int32, tl.int32), is_pure=True, pack=1,
        )
    return v0, v1, v2, v3


@triton.jit
def _max3(a, b, c):
    return _mx(_mx(a, b), c)


@triton.jit
def _finish(p0, p1, p2, p3, yrow, rmask, BH: tl.constexpr, NQ: tl.constexpr, OW2: tl.constexpr):
    # word j of a row is (E[j], O[j]) = columns (2j, 2j+1); out[o] = max(O[o-1], E[o+1], O[o+2]).
    # Lane q holds words 4q..4q+3 (p0..p3) and makes outputs 4q..4q+3.
    q = tl.arange(0, NQ)
    left = tl.broadcast_to(tl.maximum(q - 1, 0)[None, :], (BH, NQ))
    right = tl.broadcast_to(tl.minimum(q + 1, NQ - 1)[None, :], (BH, NQ))
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
    tl.store(yrow, first, mask=rmask & (q < OW2)[None, :])
    tl.store(yrow + NQ, second, mask=rmask & (q + NQ < OW2)[None, :])


@triton.autotune(
    configs=[
        triton.Config({"BH": 64, "HINT": True}, num_warps=16, num_stages=1),
        triton.Config({"BH": 64, "HINT": False}, num_warps=16, num_stages=1),
        triton.Config({"BH": 32, "HINT": True}, num_warps=8, num_stages=1),
        triton.Config({"BH": 32, "HINT": False}, num_warps=8, num_stages=1),
    ],
    key=["D", "H", "W"],
)
@triton.jit
def pool_tap_policy_kernel(
    x_ptr, y_ptr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OD: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    NQ: tl.constexpr, BH: tl.constexpr, HINT: tl.constexpr,
):
    OW2: tl.constexpr = OW // 2
    HT: tl.constexpr = (OH + BH - 1) // BH
    ROW: tl.constexpr = W * 2  # bytes
    PLANE: tl.constexpr = H * W * 2  # bytes

    pid = tl.program_id(0)
    ht = pid % HT
    r = (pid // HT) % 3
    plane = (pid // (3 * HT)).to(tl.int64)
    xp = x_ptr.to(tl.int64) + plane * (D * PLANE)
    yp = y_ptr + plane * (OD * OH * OW2)

    q = tl.arange(0, NQ)
    # lanes past the row repeat its last 16 bytes; what they make is not stored
    qb = tl.minimum(q, W // 8 - 1) * 16
    oh = ht * BH + tl.arange(0, BH)
    # the middle tap is always inside; a tap outside is replaced by the middle one
    mid = 2 * tl.minimum(oh, OH - 1) + 2
    top = tl.where(mid < 3, mid, mid - 3)
    off_top = top[:, None] * ROW + qb[None, :]
    off_mid = mid[:, None] * ROW + qb[None, :]
    if H % 2 == 0:
        off_bot = off_mid + 3 * ROW
    else:
        bot = tl.where(mid + 3 < H, mid + 3, mid)
        off_bot = bot[:, None] * ROW + qb[None, :]
    rmask = (oh < OH)[:, None]
    off_out = oh[:, None] * OW2 + q[None, :]

    d0 = tl.where(r == 0, 2, 2 * r - 1)
    pc = xp + d0.to(tl.int64) * PLANE
    s0, s1, s2, s3 = _load_twice(pc + off_top, HINT)
    t0, t1, t2, t3 = _load_once(pc + off_mid, HINT)
    u0, u1, u2, u3 = _load_twice(pc + off_bot, HINT)
    c0 = _max3(s0, t0, u0)
    c1 = _max3(s1, t1, u1)
    c2 = _max3(s2, t2, u2)
    c3 = _max3(s3, t3, u3)
    for od in range(r, OD, 3):
        da = 2 * od + 2
        db = da + 3
        if D % 2 == 1:
            db = tl.where(db < D, db, da)
        pa = xp + da.to(tl.int64) * PLANE
        pb = xp + db.to(tl.int64) * PLANE
        e0, e1, e2, e3 = _load_twice(pa + off_top, HINT)
        f0, f1, f2, f3 = _load_once(pa + off_mid, HINT)
        g0, g1, g2, g3 = _load_twice(pa + off_bot, HINT)
        i0, i1, i2, i3 = _load_twice(pb + off_top, HINT)
        j0, j1, j2, j3 = _load_once(pb + off_mid, HINT)
        k0, k1, k2, k3 = _load_twice(pb + off_bot, HINT)
        m0 = _mx(_max3(e0, f0, g0), c0)
        m1 = _mx(_max3(e1, f1, g1), c1)
        m2 = _mx(_max3(e2, f2, g2), c2)
        m3 = _mx(_max3(e3, f3, g3), c3)
        c0 = _max3(i0, j0, k0)
        c1 = _max3(i1, j1, k1)
        c2 = _max3(i2, j2, k2)
        c3 = _max3(i3, j3, k3)
        _finish(
            _mx(m0, c0), _mx(m1, c1), _mx(m2, c2), _mx(m3, c3),
            yp + od * (OH * OW2) + off_out, rmask, BH, NQ, OW2,
        )


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
        and x.data_ptr() % 16 == 0
    )
    if fast:
        planes = N * C
        grid = lambda meta: (planes * 3 * triton.cdiv(out_h, meta["BH"]),)
        pool_tap_policy_kernel[grid](
            x.view(torch.int32), y.view(torch.int32),
            D=D, H=H, W=W, OD=out_d, OH=out_h, OW=out_w,
            NQ=triton.next_power_of_2(W) // 8,
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
