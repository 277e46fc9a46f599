"""Depthwise convolution: one lane computes one output pixel of one channel."""

import torch
import triton
import triton.language as tl


@triton.jit
def _low(v):
    return (v << 16).to(tl.float32, bitcast=True)


@triton.jit
def _high(v):
    return (v & -65536).to(tl.float32, bitcast=True)


@triton.jit
def _halves(v):
    lo, hi = tl.inline_asm_elementwise(
        "mov.b64 {$0, $1}, $2;", "=r,=r,l", [v],
        dtype=(tl.int32, tl.int32), is_pure=True, pack=1,
    )
    return lo, hi


@triton.jit
def _pixels(a, b):
    # eight pixels of two 64-bit words, exactly widened to float32
    a0, a1 = _halves(a)
    b0, b1 = _halves(b)
    return _low(a0), _high(a0), _low(a1), _high(a1), _low(b0), _high(b0), _low(b1), _high(b1)


@triton.jit
def _taps(p, q, t, w, K: tl.constexpr):
    acc = p[K] * w[0]
    acc = acc + p[K + 1] * w[1]
    acc = acc + p[K + 2] * w[2]
    acc = acc + q[K] * w[3]
    acc = acc + q[K + 1] * w[4]
    acc = acc + q[K + 2] * w[5]
    acc = acc + t[K] * w[6]
    acc = acc + t[K + 1] * w[7]
    acc = acc + t[K + 2] * w[8]
    return acc


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
def _row(xa, xb, m, XQ: tl.constexpr, R: tl.constexpr):
    a = tl.load(xa + R * XQ, mask=m)
    b = tl.load(xb + R * XQ, mask=m)
    return a, b


# without the alignment of the pointers a lane never takes two adjacent words, so
# loads and stores share one layout (words j, j + 32 * num_warps, ...) at any num_warps
@triton.jit(do_not_specialize_on_alignment=["x_ptr", "y_ptr"])
def dwconv3x3_quad_kernel(
    x_ptr, weight_ptr, y_ptr,
    C: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OUT_H: tl.constexpr, OUT_W: tl.constexpr,
    ROWS: tl.constexpr, AHEAD: tl.constexpr, BLOCK: tl.constexpr,
):
    # W % 4 == 0, H and ROWS even; two output rows are YW = 2 * XQ - 1 aligned 64-bit words
    XQ: tl.constexpr = W // 4
    YW: tl.constexpr = OUT_W // 2
    TAIL: tl.constexpr = OUT_H % ROWS != 0

    strip = tl.program_id(0)
    plane = tl.program_id(1)
    channel = plane % C
    row0 = strip * ROWS

    wp = weight_ptr + channel * 9
    wr = (tl.load(wp, eviction_policy="evict_last"),)
    for k in tl.static_range(1, 9):
        wr = wr + (tl.load(wp + k, eviction_policy="evict_last"),)

    j = tl.arange(0, BLOCK)
    inside = j < XQ
    pair = j < XQ - 1
    last = j == XQ - 1
    nxt = tl.where(last, 0, j + 1)  # the last lane wraps round: it makes the odd row's first outputs

    plane64 = plane.to(tl.int64)
    xs = x_ptr + (plane64 * (H * XQ) + row0 * XQ)
    xa = xs + j
    xb = xs + nxt
    yp = y_ptr + (plane64 * ((OUT_H // 2) * YW) + strip * ((ROWS // 2) * YW)) + j

    a0, b0 = _row(xa, xb, inside, XQ, 0)
    a = (a0,)
    b = (b0,)
    for r in tl.static_range(1, AHEAD):
        if r < ROWS + 2:
            if TAIL:
                m = inside & (row0 + r < H)
            else:
                m = inside
            ar, br = _row(xa, xb, m, XQ, r)
            a = a + (ar,)
            b = b + (br,)

    w = (wr[0].to(tl.float32),)
    for k in tl.static_range(1, 9):
        w = w + (wr[k].to(tl.float32),)

    p = _pixels(a[0], b[0])
    q = _pixels(a[1], b[1])
    for r in tl.static_range(0, ROWS, 2):
        for s in tl.static_range(2):
            if r + s + AHEAD < ROWS + 2:
                if TAIL:
                    mm = inside & (row0 + (r + s + AHEAD) < H)
                else:
                    mm = inside
                an, bn = _row(xa, xb, mm, XQ, r + s + AHEAD)
                a = a + (an,)
                b = b + (bn,)

        t = _pixels(a[r + 2], b[r + 2])
        u = _pixels(a[r + 3], b[r + 3])

        e0 = _taps(p, q, t, w, 0)
        e1 = _taps(p, q, t, w, 1)
        e2 = _taps(p, q, t, w, 2)
        e3 = _taps(p, q, t, w, 3)
        o0 = _taps(q, t, u, w, 2)
        o1 = _taps(q, t, u, w, 3)
        o2 = _taps(q, t, u, w, 4)
        o3 = _taps(q, t, u, w, 5)

        even_lo = _round2(e0, e1)
        even_hi = _round2(e2, e3)
        odd_lo = _round2(o0, o1)
        odd_hi = _round2(o2, o3)
        even_word = _join2(even_lo, tl.where(last, odd_hi, even_hi))
        odd_word = _join2(odd_lo, odd_hi)

        if TAIL:
            m_even = inside & (row0 + r < OUT_H)
            m_odd = pair & (row0 + r < OUT_H)
        else:
            m_even = inside
            m_odd = pair
        tl.store(yp + (r // 2) * YW, even_word, mask=m_even)
        tl.store(yp + ((r // 2) * YW + XQ), odd_word, mask=m_odd)

        p = t
        q = u


@triton.jit
def _pixels16(a, b):
    # sixteen pixels of two 128-bit words ([BLOCK, 2] tiles), exactly widened to float32
    al, ah = tl.split(a)
    bl, bh = tl.split(b)
    a0, a1 = _halves(al)
    a2, a3 = _halves(ah)
    b0, b1 = _halves(bl)
    b2, b3 = _halves(bh)
    return (
        _low(a0), _high(a0), _low(a1), _high(a1), _low(a2), _high(a2), _low(a3), _high(a3),
        _low(b0), _high(b0), _low(b1), _high(b1), _low(b2), _high(b2), _low(b3), _high(b3),
    )


@triton.jit
def _fetch16(
    xa, xb, row, R: tl.constexpr, ROWS: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
    POLICY: tl.constexpr,
):
    # own word and right neighbour of the strip's input row R; only the outermost rows can lie
    # outside. Rows 2 .. ROWS-1 are read by this program alone: b is their last reading.
    D: tl.constexpr = 2 * R * BLOCK
    GUARD: tl.constexpr = ((R < 2) or (R >= ROWS)) or (H % ROWS != 0)
    PRIVATE: tl.constexpr = (R >= 2) and (R < ROWS)
    EA: tl.constexpr = "evict_first" if (PRIVATE and (POLICY == 2)) else ""
    EB: tl.constexpr = "evict_first" if (PRIVATE and (POLICY >= 1)) else ""
    if GUARD:
        ok = (row + R >= 0) & (row + R < H)
        a = tl.load(xa + D, mask=ok, eviction_policy=EA)
        b = tl.load(xb + D, mask=ok, eviction_policy=EB)
    else:
        a = tl.load(xa + D, eviction_policy=EA)
        b = tl.load(xb + D, eviction_policy=EB)
    return a, b


@triton.jit
def _pair(p, q, t, w, K: tl.constexpr):
    return _round2(_taps(p, q, t, w, K), _taps(p, q, t, w, K + 1))


@triton.jit
def _pairs(p, q, t, w, R: tl.constexpr):
    # the 8 outputs of row R, which begin 2 * (R % 4) pixels to the right of the own word
    K: tl.constexpr = 2 * (R % 4)
    c0 = _pair(p, q, t, w, K)
    c1 = _pair(p, q, t, w, K + 2)
    c2 = _pair(p, q, t, w, K + 4)
    c3 = _pair(p, q, t, w, K + 6)
    return c0, c1, c2, c3


@triton.jit
def _mend(last, own, below, R: tl.constexpr):
    # the last lane's word ends with the first outputs of the row below (R % 4 < 3)
    c1 = own[1]
    c2 = own[2]
    if R % 4 == 2:
        c1 = tl.where(last, below[1], own[1])
    if R % 4 >= 1:
        c2 = tl.where(last, below[2], own[2])
    c3 = tl.where(last, below[3], own[3])
    return own[0], c1, c2, c3


@triton.jit
def _emit(
    yt, ye, c, last, pair, row, first, final, odd,
    R: tl.constexpr, ROWS: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
    POLICY: tl.constexpr,
):
    # store word R % 4 of group R // 4: 16 bytes a lane
    G: tl.constexpr = R // 4
    NW: tl.constexpr = 4 * BLOCK - 1
    D: tl.constexpr = 2 * (G * NW + (R % 4) * BLOCK)
    LASTG: tl.constexpr = (H // 4 - 1) % (ROWS // 4)
    EDGE: tl.constexpr = (G == 0) or (G == LASTG)
    GUARD: tl.constexpr = ((R < 2) or (R >= ROWS - 2)) or (H % ROWS != 0)
    ES: tl.constexpr = "evict_first" if POLICY == 3 else ""

    lo = _join2(c[0], c[1])
    hi = _join2(c[2], c[3])
    v = tl.join(lo, hi)
    ok = (row + R >= 0) & (row + R < H - 2)
    if R % 4 == 3:
        if GUARD:
            m3 = pair & ok
        else:
            m3 = pair
        tl.store(yt + D, v, mask=m3[:, None], eviction_policy=ES)
    elif (R % 4 == 1) and EDGE:
        # in a plane's partial group the last lane's word is shared with the neighbour plane
        if (G == 0) and (G == LASTG):
            partial = first | final
        elif G == 0:
            partial = first
        else:
            partial = final
        m1 = pair | (~partial)
        if GUARD:
            m1 = m1 & ok
        tl.store(yt + D, v, mask=m1[:, None], eviction_policy=ES)
        tl.store(ye + D, tl.where(odd == 1, hi, lo), mask=last & partial, eviction_policy=ES)
    elif GUARD:
        tl.store(yt + D, v, mask=ok, eviction_policy=ES)
    else:
        tl.store(yt + D, v, eviction_policy=ES)


@triton.jit
def dwconv3x3_oct_kernel(
    x_ptr, weight_ptr, y_ptr,
    C: tl.constexpr, H: tl.constexpr, BLOCK: tl.constexpr,
    ROWS: tl.constexpr, AHEAD: tl.constexpr, POLICY: tl.constexpr,
):
    # W = 8 * BLOCK, H % 4 == 0, ROWS % 4 == 0, 2 <= AHEAD <= ROWS + 2, pointers to int64 at
    # multiples of 16 bytes. Four output rows are NW = 4 * BLOCK - 1 aligned 16-byte words: row r
    # of a group makes, in lane j, the outputs 8j + 2r .. 8j + 2r + 7 and stores them as word
    # r * BLOCK + j. A plane is 8 mod 16 bytes long, so the groups of odd planes begin two rows
    # before the plane.
    OUT_H: tl.constexpr = H - 2
    OUT_W: tl.constexpr = 8 * BLOCK - 2
    NW: tl.constexpr = OUT_W // 2
    PAIR_WORDS: tl.constexpr = OUT_H * OUT_W // 4
    ODD_WORDS: tl.constexpr = (OUT_H * OUT_W // 4 - OUT_W // 2) // 2
    STRIP_WORDS: tl.constexpr = (ROWS // 4) * NW
    LAST_STRIP: tl.constexpr = (H // 4 - 1) // (ROWS // 4)

    strip = tl.program_id(0)
    plane = tl.program_id(1)
    channel = plane % C
    odd = plane & 1
    row = strip * ROWS - 2 * odd

    # weights under way first, raw
    wp = weight_ptr + channel * 9
    wr = (tl.load(wp, eviction_policy="evict_last"),)
    for k in tl.static_range(1, 9):
        wr = wr + (tl.load(wp + k, eviction_policy="evict_last"),)

    j = tl.arange(0, BLOCK)
    last = j == BLOCK - 1
    pair = j < BLOCK - 1
    nxt = tl.where(last, 0, j + 1)  # the last lane wraps round: it makes the first outputs of its row
    inner = tl.arange(0, 2)

    plane64 = plane.to(tl.int64)
    half64 = plane64 >> 1
    xs = x_ptr + 2 * (plane64 * (H * BLOCK) + row * BLOCK)
    xa = xs + (2 * j[:, None] + inner[None, :])
    xb = xs + (2 * nxt[:, None] + inner[None, :])
    ys = y_ptr + 2 * (half64 * PAIR_WORDS + odd * ODD_WORDS + strip * STRIP_WORDS)
    yt = ys + (2 * j[:, None] + inner[None, :])
    ye = ys + (2 * j + odd)

    first = (strip == 0) & (odd == 1)
    final = (strip == LAST_STRIP) & (odd == 0)

    # rows 0 .. AHEAD-1 under way before anything is used
    a0, b0 = _fetch16(xa, xb, row, 0, ROWS, H, BLOCK, POLICY)
    a = (a0,)
    b = (b0,)
    for r in tl.static_range(1, AHEAD):
        if r < ROWS + 2:
            ar, br = _fetch16(xa, xb, row, r, ROWS, H, BLOCK, POLICY)
            a = a + (ar,)
            b = b + (br,)

    w = (wr[0].to(tl.float32),)
    for k in tl.static_range(1, 9):
        w = w + (wr[k].to(tl.float32),)

    p = _pixels16(a[0], b[0])
    q = _pixels16(a[1], b[1])
    for r in tl.static_range(ROWS):
        if r + AHEAD < ROWS + 2:
            an, bn = _fetch16(xa, xb, row, r + AHEAD, ROWS, H, BLOCK, POLICY)
            a = a + (an,)
            b = b + (bn,)

        t = _pixels16(a[r + 2], b[r + 2])
        new = _pairs(p, q, t, w, r)
        if r % 4 != 0:
            mended = _mend(last, old, new, r - 1)
            _emit(yt, ye, mended, last, pair, row, first, final, odd, r - 1, ROWS, H, BLOCK, POLICY)
        if r % 4 == 3:
            _emit(yt, ye, new, last, pair, row, first, final, odd, r, ROWS, H, BLOCK, POLICY)
        old = new
        p = q
        q = t


# (ROWS, AHEAD, POLICY): the first is the control
_OCT_CHOICES = (
    (4, 6, 0),
    (4, 6, 1),
    (4, 6, 2),
    (4, 6, 3),
    (8, 6, 1),
)

_OCT_TUNED = triton.autotune(
    configs=[
        triton.Config({"ROWS": rows, "AHEAD": ahead, "POLICY": policy}, num_warps=2)
        for rows, ahead, policy in _OCT_CHOICES
    ],
    key=["C", "H", "BLOCK"],
)(dwconv3x3_oct_kernel)


@triton.jit
def depthwise_conv2d_kernel(
    x_ptr, weight_ptr, y_ptr,
    channels, H, W, out_h, out_w,
    stride, padding,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    plane = tl.program_id(1).to(tl.int64)
    channel = plane % channels
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_h * out_w
    ow = index % out_w
    oh = index // out_w

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kh in range(KERNEL_SIZE):
        h = oh * stride - padding + kh
        for kw in range(KERNEL_SIZE):
            w = ow * stride - padding + kw
            inside = (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x = tl.load(x_ptr + plane * H * W + h * W + w, mask=valid & inside, other=0.0)
            weight = tl.load(weight_ptr + (channel * KERNEL_SIZE + kh) * KERNEL_SIZE + kw)
            acc += x.to(tl.float32) * weight.to(tl.float32)
    tl.store(y_ptr + plane * out_h * out_w + index, acc.to(y_ptr.dtype.element_ty), mask=valid)


def kernel_function(x, weight, stride, padding):
    x = x.contiguous()
    weight = weight.contiguous()
    N, channels, H, W = x.shape
    kernel_size = weight.shape[-1]
    stride, padding = stride[0], padding[0]
    out_h = (H + 2 * padding - kernel_size) // stride + 1
    out_w = (W + 2 * padding - kernel_size) // stride + 1
    y = torch.empty((N, channels, out_h, out_w), dtype=x.dtype, device=x.device)
    if y.numel() == 0:
        return y

    fast = (
        x.dtype == torch.bfloat16
        and tuple(weight.shape[-2:]) == (3, 3)
        and stride == 1
        and padding == 0
        and W % 4 == 0
        and 4 <= W <= 2048
        and H % 2 == 0
        and H >= 4
        and N * channels <= 65535
        and x.data_ptr() % 8 == 0
        and y.data_ptr() % 8 == 0
        and x.storage_offset() % 4 == 0
    )
    if fast:
        block = max(32, triton.next_power_of_2(W // 4))
        x64 = x.view(torch.int64)
        y64 = y.view(-1).view(torch.int64)
        planes = N * channels
        lanes = W // 8
        wide = (
            W == 8 * lanes
            and lanes in (32, 64, 128, 256)
            and H % 4 == 0
            and x.data_ptr() % 16 == 0
            and y.data_ptr() % 16 == 0
            and x.numel() >= (1 << 22)
        )
        if wide and lanes == 64:
            oct_grid = lambda META: (triton.cdiv(H, META["ROWS"]), planes)
            _OCT_TUNED[oct_grid](
                x64, weight, y64,
                C=channels, H=H, BLOCK=lanes,
            )
        elif wide:
            dwconv3x3_oct_kernel[(triton.cdiv(H, 8), planes)](
                x64, weight, y64,
                C=channels, H=H, BLOCK=lanes,
                ROWS=8, AHEAD=6, POLICY=0, num_warps=lanes // 32,
            )
        else:
            dwconv3x3_quad_kernel[(triton.cdiv(out_h, 6), planes)](
                x64, weight, y64,
                C=channels, H=H, W=W, OUT_H=out_h, OUT_W=out_w,
                ROWS=6, AHEAD=8, BLOCK=block,
                num_warps=block // 32,
            )
        return y

    grid = (triton.cdiv(out_h * out_w, 1024), N * channels)
    depthwise_conv2d_kernel[grid](
        x, weight, y,
        channels, H, W, out_h, out_w,
        stride, padding,
        KERNEL_SIZE=kernel_size, BLOCK=1024,
    )
    return y
