"""Depthwise 3x3 convolution on 64-bit words: one warp walks down whole rows, loads each word once, shuffles for neighbours."""

import torch
import triton
import triton.language as tl


@triton.jit
def _halves(v):
    lo, hi = tl.inline_asm_elementwise(
        "mov.b64 {$0, $1}, $2;", "=r,=r,l", [v],
        dtype=(tl.int32, tl.int32), is_pure=True, pack=1,
    )
    return lo, hi


@triton.jit
def _pixels(a0, a1, b0, b1):
    # eight pixels of four 32-bit halves, exactly widened to float32; one operation keeps the graph small
    p0, p1, p2, p3, p4, p5, p6, p7 = tl.inline_asm_elementwise(
        "{ .reg .b32 t<8>; "
        "shl.b32 t0, $8, 16; "
        "and.b32 t1, $8, 0xffff0000; "
        "shl.b32 t2, $9, 16; "
        "and.b32 t3, $9, 0xffff0000; "
        "shl.b32 t4, $10, 16; "
        "and.b32 t5, $10, 0xffff0000; "
        "shl.b32 t6, $11, 16; "
        "and.b32 t7, $11, 0xffff0000; "
        "mov.b32 $0, t0; "
        "mov.b32 $1, t1; "
        "mov.b32 $2, t2; "
        "mov.b32 $3, t3; "
        "mov.b32 $4, t4; "
        "mov.b32 $5, t5; "
        "mov.b32 $6, t6; "
        "mov.b32 $7, t7; }",
        "=f,=f,=f,=f,=f,=f,=f,=f,r,r,r,r", [a0, a1, b0, b1],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32,
               tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True, pack=1,
    )
    return p0, p1, p2, p3, p4, p5, p6, p7


@triton.jit
def _start(p, w, K: tl.constexpr):
    # first filter row of four adjacent outputs
    c0, c1, c2, c3 = tl.inline_asm_elementwise(
        "{ .reg .f32 t<4>; "
        "mul.rn.f32 t0, $4, $10; "
        "mul.rn.f32 t1, $5, $10; "
        "mul.rn.f32 t2, $6, $10; "
        "mul.rn.f32 t3, $7, $10; "
        "fma.rn.f32 t0, $5, $11, t0; "
        "fma.rn.f32 t1, $6, $11, t1; "
        "fma.rn.f32 t2, $7, $11, t2; "
        "fma.rn.f32 t3, $8, $11, t3; "
        "fma.rn.f32 t0, $6, $12, t0; "
        "fma.rn.f32 t1, $7, $12, t1; "
        "fma.rn.f32 t2, $8, $12, t2; "
        "fma.rn.f32 t3, $9, $12, t3; "
        "mov.f32 $0, t0; "
        "mov.f32 $1, t1; "
        "mov.f32 $2, t2; "
        "mov.f32 $3, t3; }",
        "=f,=f,=f,=f,"
        "f,f,f,f,f,f,"
        "f,f,f",
        [p[K], p[K + 1], p[K + 2], p[K + 3], p[K + 4], p[K + 5], w[0], w[1], w[2]],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True, pack=1,
    )
    return c0, c1, c2, c3


@triton.jit
def _more(c0, c1, c2, c3, p, w, K: tl.constexpr, T: tl.constexpr):
    # one more filter row (taps T .. T+2) of four adjacent outputs
    d0, d1, d2, d3 = tl.inline_asm_elementwise(
        "{ .reg .f32 t<4>; "
        "fma.rn.f32 t0, $8, $14, $4; "
        "fma.rn.f32 t1, $9, $14, $5; "
        "fma.rn.f32 t2, $10, $14, $6; "
        "fma.rn.f32 t3, $11, $14, $7; "
        "fma.rn.f32 t0, $9, $15, t0; "
        "fma.rn.f32 t1, $10, $15, t1; "
        "fma.rn.f32 t2, $11, $15, t2; "
        "fma.rn.f32 t3, $12, $15, t3; "
        "fma.rn.f32 t0, $10, $16, t0; "
        "fma.rn.f32 t1, $11, $16, t1; "
        "fma.rn.f32 t2, $12, $16, t2; "
        "fma.rn.f32 t3, $13, $16, t3; "
        "mov.f32 $0, t0; "
        "mov.f32 $1, t1; "
        "mov.f32 $2, t2; "
        "mov.f32 $3, t3; }",
        "=f,=f,=f,=f,"
        "f,f,f,f,"
        "f,f,f,f,f,f,"
        "f,f,f",
        [c0, c1, c2, c3, p[K], p[K + 1], p[K + 2], p[K + 3], p[K + 4], p[K + 5],
         w[T], w[T + 1], w[T + 2]],
        dtype=(tl.float32, tl.float32, tl.float32, tl.float32),
        is_pure=True, pack=1,
    )
    return d0, d1, d2, d3


@triton.jit
def _round2(c0, c1):
    # two float32 to one word of two bfloat16, c0 in the lower half
    return tl.inline_asm_elementwise(
        "cvt.rn.bf16x2.f32 $0, $2, $1;", "=r,f,f", [c0, c1],
        dtype=tl.int32, is_pure=True, pack=1,
    )


@triton.jit
def _join2(lo, hi):
    return tl.inline_asm_elementwise(
        "mov.b64 $0, {$1, $2};", "=l,r,r", [lo, hi],
        dtype=tl.int64, is_pure=True, pack=1,
    )


@triton.jit
def _fetch(xp, lane, row0, I: tl.constexpr, CI: tl.constexpr, H: tl.constexpr,
           XQ: tl.constexpr, TAIL: tl.constexpr):
    # chunk CI (32 words) of input row row0 + I
    if TAIL:
        v = tl.load(xp + (I * XQ + CI * 32), mask=(lane + CI * 32 < XQ) & (row0 + I < H))
    else:
        if CI * 32 + 32 > XQ:
            v = tl.load(xp + (I * XQ + CI * 32), mask=lane + CI * 32 < XQ)
        else:
            v = tl.load(xp + (I * XQ + CI * 32))
    return v


@triton.jit
def _put(yp, word, lane, row0, R: tl.constexpr, OFF: tl.constexpr, CI: tl.constexpr,
         LIMIT: tl.constexpr, OUT_H: tl.constexpr, TAIL: tl.constexpr):
    # chunk CI of a row of LIMIT words
    if TAIL:
        tl.store(yp + (OFF + CI * 32), word, mask=(lane + CI * 32 < LIMIT) & (row0 + R < OUT_H))
    else:
        if CI * 32 + 32 > LIMIT:
            tl.store(yp + (OFF + CI * 32), word, mask=lane + CI * 32 < LIMIT)
        else:
            tl.store(yp + (OFF + CI * 32), word)


@triton.jit
def dwconv3x3_shuffle_kernel(
    x_ptr, weight_ptr, y_ptr,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OUT_H: tl.constexpr, OUT_W: tl.constexpr,
    ROWS: tl.constexpr, AHEAD: tl.constexpr,
):
    # W % 4 == 0, H and ROWS even. An input row is XQ 64-bit words; two output rows
    # (even, odd) together are YW = 2 * XQ - 1 aligned 64-bit words:
    #   words 0 .. XQ-2    even row, outputs 4j .. 4j+3
    #   word  XQ-1         last two outputs of the even row, first two of the odd row
    #   words XQ .. YW-1   odd row, outputs 4j+2 .. 4j+5
    # Word j = 32 * chunk + lane. The last word's neighbour is word 0 of the same row.
    XQ: tl.constexpr = W // 4
    YW: tl.constexpr = OUT_W // 2
    TAIL: tl.constexpr = OUT_H % ROWS != 0
    CH: tl.constexpr = (XQ + 31) // 32
    END: tl.constexpr = (XQ - 1) % 32

    strip = tl.program_id(0)
    plane = tl.program_id(1)
    channel = plane % C
    row0 = strip * ROWS
    lane = tl.arange(0, 32)
    turn = (lane + 1) & 31
    seam = lane == 31
    last = lane == END

    # weights first, converted only when the first x loads are under way
    wp = weight_ptr + channel * 9
    raw = (tl.load(wp),)
    for k in tl.static_range(1, 9):
        raw = raw + (tl.load(wp + k),)

    x64 = x_ptr.to(tl.pointer_type(tl.int64), bitcast=True)
    y64 = y_ptr.to(tl.pointer_type(tl.int64), bitcast=True)
    plane64 = plane.to(tl.int64)
    xp = x64 + (plane64 * (H * XQ) + row0 * XQ) + lane
    yp = y64 + (plane64 * ((OUT_H // 2) * YW) + strip * ((ROWS // 2) * YW)) + lane

    # word (row i, chunk c) is a[i * CH + c]
    a = (_fetch(xp, lane, row0, 0, 0, H, XQ, TAIL),)
    for c in tl.static_range(1, CH):
        a = a + (_fetch(xp, lane, row0, 0, c, H, XQ, TAIL),)
    for i in tl.static_range(1, AHEAD):
        if i < ROWS + 2:
            for c in tl.static_range(CH):
                a = a + (_fetch(xp, lane, row0, i, c, H, XQ, TAIL),)

    w = (raw[0].to(tl.float32),)
    for k in tl.static_range(1, 9):
        w = w + (raw[k].to(tl.float32),)

    for i in tl.static_range(ROWS + 2):
        # a later row's loads first, before this row's stores
        if i + AHEAD < ROWS + 2:
            for c in tl.static_range(CH):
                a = a + (_fetch(xp, lane, row0, i + AHEAD, c, H, XQ, TAIL),)

        # every chunk turned by one lane: lane t holds word t + 1 of the chunk, lane 31 its word 0
        for c in tl.static_range(CH):
            half0, half1 = _halves(a[i * CH + c])
            turn0 = tl.gather(half0, turn, 0)
            turn1 = tl.gather(half1, turn, 0)
            if c == 0:
                lo = (half0,)
                hi = (half1,)
                tlo = (turn0,)
                thi = (turn1,)
            else:
                lo = lo + (half0,)
                hi = hi + (half1,)
                tlo = tlo + (turn0,)
                thi = thi + (turn1,)

        for c in tl.static_range(CH):
            if c + 1 < CH:
                n0 = tl.where(seam, tlo[c + 1], tlo[c])
                n1 = tl.where(seam, thi[c + 1], thi[c])
            else:
                if XQ % 32 == 0:
                    n0 = tl.where(seam, tlo[0], tlo[c])
                    n1 = tl.where(seam, thi[0], thi[c])
                else:
                    n0 = tl.where(last, tl.gather(lo[0], lane * 0, 0), tlo[c])
                    n1 = tl.where(last, tl.gather(hi[0], lane * 0, 0), thi[c])
            p = _pixels(lo[c], hi[c], n0, n1)

            if i % 2 == 0:
                # finish even row i - 2, continue odd row i - 1, start even row i
                if i >= 2:
                    f = _more(e[4 * c], e[4 * c + 1], e[4 * c + 2], e[4 * c + 3], p, w, 0, 6)
                    f0 = _round2(f[0], f[1])
                    f1 = _round2(f[2], f[3])
                    g = _more(o[4 * c], o[4 * c + 1], o[4 * c + 2], o[4 * c + 3], p, w, 2, 3)
                    if c == 0:
                        done = (f0, f1)
                        new_o = g
                    else:
                        done = done + (f0, f1)
                        new_o = new_o + g
                if i < ROWS:
                    s = _start(p, w, 0)
                    if c == 0:
                        new_e = s
                    else:
                        new_e = new_e + s
            else:
                # finish odd row i - 2 and store the pair, continue even row i - 1, start odd row i
                if i >= 3:
                    f = _more(o[4 * c], o[4 * c + 1], o[4 * c + 2], o[4 * c + 3], p, w, 2, 6)
                    odd_lo = _round2(f[0], f[1])
                    odd_hi = _round2(f[2], f[3])
                    even_hi = done[2 * c + 1]
                    if c + 1 == CH:
                        even_hi = tl.where(last, odd_hi, even_hi)
                    even_word = _join2(done[2 * c], even_hi)
                    odd_word = _join2(odd_lo, odd_hi)
                    _put(yp, even_word, lane, row0, i - 3, ((i - 3) // 2) * YW, c, XQ, OUT_H, TAIL)
                    _put(yp, odd_word, lane, row0, i - 3, ((i - 3) // 2) * YW + XQ, c, XQ - 1, OUT_H, TAIL)
                if i < ROWS:
                    g = _more(e[4 * c], e[4 * c + 1], e[4 * c + 2], e[4 * c + 3], p, w, 0, 3)
                    s = _start(p, w, 2)
                    if c == 0:
                        new_e = g
                        new_o = s
                    else:
                        new_e = new_e + g
                        new_o = new_o + s

        if i < ROWS:
            e = new_e
        if i >= 1:
            if i <= ROWS:
                o = new_o


_tuned = triton.autotune(
    configs=[
        triton.Config({"ROWS": 10, "AHEAD": 8}, num_warps=1),
        triton.Config({"ROWS": 10, "AHEAD": 6}, num_warps=1),
        triton.Config({"ROWS": 10, "AHEAD": 4}, num_warps=1),
        triton.Config({"ROWS": 6, "AHEAD": 6}, num_warps=1),
    ],
    key=["C", "H", "W"],
)(dwconv3x3_shuffle_kernel)


@triton.jit
def depthwise_general_kernel(
    x_ptr, weight_ptr, y_ptr,
    channels, H, W, out_h, out_w, blocks,
    SH: tl.constexpr, SW: tl.constexpr, PH: tl.constexpr, PW: tl.constexpr,
    DH: tl.constexpr, DW: tl.constexpr, KH: tl.constexpr, KW: tl.constexpr,
    BLOCK: tl.constexpr,
):
    pid = tl.program_id(0)
    plane = pid // blocks
    block = pid % blocks
    channel = plane % channels
    plane64 = plane.to(tl.int64)
    index = block * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_h * out_w
    ow = index % out_w
    oh = index // out_w
    x_plane = x_ptr + plane64 * H * W
    y_plane = y_ptr + plane64 * out_h * out_w
    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kh in range(KH):
        h = oh * SH - PH + kh * DH
        for kw in range(KW):
            w = ow * SW - PW + kw * DW
            inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
            v = tl.load(x_plane + h * W + w, mask=valid & inside, other=0.0)
            k = tl.load(weight_ptr + (channel * KH + kh) * KW + kw)
            acc += v.to(tl.float32) * k.to(tl.float32)
    tl.store(y_plane + index, acc.to(y_ptr.dtype.element_ty), mask=valid)


def _two(v):
    if isinstance(v, (tuple, list)):
        if len(v) == 1:
            return (int(v[0]), int(v[0]))
        return (int(v[0]), int(v[1]))
    return (int(v), int(v))


def kernel_function(x, weight, stride=(1, 1), padding=(0, 0), dilation=(1, 1)):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C, H, W = x.shape
    kh, kw = weight.shape[-2], weight.shape[-1]
    sh, sw = _two(stride)
    ph, pw = _two(padding)
    dh, dw = _two(dilation)
    out_h = (H + 2 * ph - dh * (kh - 1) - 1) // sh + 1
    out_w = (W + 2 * pw - dw * (kw - 1) - 1) // sw + 1
    y = torch.empty((N, C, out_h, out_w), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y

    fast = (
        x.dtype == torch.bfloat16
        and weight.dtype == torch.bfloat16
        and (kh, kw) == (3, 3)
        and (sh, sw) == (1, 1)
        and (ph, pw) == (0, 0)
        and (dh, dw) == (1, 1)
        and W % 4 == 0
        and 4 <= W <= 768
        and H % 2 == 0
        and H >= 4
        and N * C <= 65535
        and x.data_ptr() % 8 == 0
        and y.data_ptr() % 8 == 0
    )
    if fast:
        planes = N * C
        if x.numel() >= (1 << 22):
            grid = lambda META: (triton.cdiv(out_h, META["ROWS"]), planes)
            _tuned[grid](
                x, weight, y,
                C=C, H=H, W=W, OUT_H=out_h, OUT_W=out_w,
            )
        else:
            dwconv3x3_shuffle_kernel[(triton.cdiv(out_h, 6), planes)](
                x, weight, y,
                C=C, H=H, W=W, OUT_H=out_h, OUT_W=out_w,
                ROWS=6, AHEAD=6, num_warps=1,
            )
        return y

    block = 1024
    blocks = triton.cdiv(out_h * out_w, block)
    depthwise_general_kernel[(N * C * blocks,)](
        x, weight, y, C, H, W, out_h, out_w, blocks,
        SH=sh, SW=sw, PH=ph, PW=pw, DH=dh, DW=dw, KH=kh, KW=kw,
        BLOCK=block, num_warps=4,
    )
    return y
