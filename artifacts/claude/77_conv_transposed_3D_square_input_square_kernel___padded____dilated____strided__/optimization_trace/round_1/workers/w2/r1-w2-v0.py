"""Transposed convolution (stride 2, padding 1, dilation 2, kernel 3) as a dense 3x3x3 'same' convolution.

Only outputs with odd od, oh, ow are nonzero: o = 2q + 1, fed by i = q + 1 - k for all 27 taps.
Kernel 1 packs x channels-last with a zero halo; kernel 2 is an implicit GEMM with tl.dot that writes
the output as aligned 32-bit words, each of which holds at most one nonzero bfloat16.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def pack_kernel(
    x_ptr, w_ptr, xp_ptr, wp_ptr,
    C_IN: tl.constexpr, C_OUT: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    CP: tl.constexpr, CO: tl.constexpr,
    BW: tl.constexpr, BH: tl.constexpr,
    WPROGS: tl.constexpr, WBLOCK: tl.constexpr,
):
    HB: tl.constexpr = (HP + BH - 1) // BH
    pid = tl.program_id(0)
    if pid < WPROGS:
        # wp[27, CO, CP] from weight[C_IN, C_OUT, 27]
        idx = pid * WBLOCK + tl.arange(0, WBLOCK)
        wci = idx % CP
        rest = idx // CP
        wco = rest % CO
        tap = rest // CO
        w_ok = tap < 27
        wsrc = (wci * C_OUT + wco) * 27 + tap
        wval = tl.load(w_ptr + wsrc, mask=w_ok & (wci < C_IN) & (wco < C_OUT), other=0.0)
        tl.store(wp_ptr + idx, wval, mask=w_ok)
    else:
        # xp[N, DP, HP, WP, CP]: BH rows of one padded plane
        q = pid - WPROGS
        hb = q % HB
        plane = q // HB
        dp = plane % DP
        n = plane // DP
        p = tl.arange(0, BH * BW)
        c = tl.arange(0, 32)
        hp = hb * BH + p // BW
        w = p % BW
        d = dp - 1
        h = hp - 1
        ok = (h >= 0) & (h < H) & (d >= 0) & (d < D)
        if W != BW:
            ok = ok & (w < W)
        src = h * W + w
        x_base = x_ptr + (n.to(tl.int64) * (C_IN * D) + d) * (H * W)
        xp_base = xp_ptr + plane.to(tl.int64) * (HP * WP * CP)
        dst = (hp * WP + w + 1) * CP
        row_ok = hp < HP
        e = tl.arange(0, 2 * BH)
        ehp = hb * BH + e // 2
        edst = (ehp * WP + (e % 2) * (BW + 1)) * CP
        e_ok = ehp < HP
        for kc in tl.static_range(CP // 32):
            ci = kc * 32 + c
            tile = tl.load(
                x_base + (ci[:, None] * (D * H * W) + src[None, :]),
                mask=(ci < C_IN)[:, None] & ok[None, :], other=0.0,
            )
            tl.store(xp_base + (dst[:, None] + ci[None, :]), tl.trans(tile), mask=row_ok[:, None])
            edge = tl.zeros((2 * BH, 32), dtype=xp_ptr.dtype.element_ty)
            tl.store(xp_base + (edst[:, None] + ci[None, :]), edge, mask=e_ok[:, None])


@triton.jit
def store_values(out_ptr, acc, offs, shift, mask):
    bits = acc.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    tl.store(out_ptr + offs, bits << shift, mask=mask)


@triton.jit
def conv_kernel(
    xp_ptr, wp_ptr, buf_ptr, total_words,
    C_OUT: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, S: tl.constexpr,
    DP: tl.constexpr, HP: tl.constexpr, WP: tl.constexpr,
    CP: tl.constexpr, CO: tl.constexpr,
    BW: tl.constexpr, BH: tl.constexpr,
    NS: tl.constexpr,
):
    P: tl.constexpr = BH * BW
    NCO: tl.constexpr = CO // 64
    KC: tl.constexpr = CP // 32
    T: tl.constexpr = (H + BH - 1) // BH
    TAIL: tl.constexpr = OW * (H + 1)
    NCHUNK: tl.constexpr = (TAIL + P - 1) // P
    PLANE: tl.constexpr = HP * WP * CP
    TAPW: tl.constexpr = CO * CP

    th = tl.program_id(0)
    td = tl.program_id(1)
    pz = tl.program_id(2)
    n = pz // NCO
    c0 = (pz % NCO) * 64

    p = tl.arange(0, P)
    pr = p // BW
    pw = p % BW
    rows = tl.arange(0, 64)

    # Output as 32-bit words: one int64 scalar base, int32 offsets from it.
    nc0 = n * C_OUT + c0
    first = nc0.to(tl.int64) * S + 1
    base = first >> 1
    out_ptr = buf_ptr + base
    chan = ((first & 1).to(tl.int32) + rows * S) >> 1
    c_ok = (c0 + rows) < C_OUT
    limit = tl.minimum(total_words - base, 2147483647).to(tl.int32)
    qh = th * BH + pr
    h_ok = qh < H

    # 1. Zeros first, so that they drain under the dots: gaps behind the values of each row.
    zero = tl.zeros((64, P), dtype=tl.int32)
    for j in tl.static_range(2):
        qd = td * 2 + j
        gap = TAIL + (qd * OH + qh) * OW + W + pw
        g_ok = h_ok & (pw < W + 1) & (qd < D)
        tl.store(out_ptr + (chan[:, None] + gap[None, :]), zero, mask=c_ok[:, None] & g_ok[None, :])
        if W + 1 > BW:
            qe = th * BH + tl.arange(0, BH)
            last = TAIL + (qd * OH + qe) * OW + 2 * W
            l_ok = (qe < H) & (qd < D)
            tl.store(
                out_ptr + (chan[:, None] + last[None, :]), tl.zeros((64, BH), dtype=tl.int32),
                mask=c_ok[:, None] & l_ok[None, :],
            )
    # Tails behind the planes (plane -1: the words that lead the channel), in chunks of P words.
    for j in tl.static_range(3):
        qt = td * 2 + j - 1
        if j == 0:
            todo = td == 0
        else:
            todo = qt < D
        if todo:
            for k in range(th, NCHUNK, T):
                col = k * P + p
                rel = TAIL + (qt * OH + H) * OW + col
                offs = chan[:, None] + rel[None, :]
                t_ok = c_ok[:, None] & (col < TAIL)[None, :] & (offs < limit)
                tl.store(out_ptr + offs, zero, mask=t_ok)

    # 2. Implicit GEMM: four padded input planes feed two output planes.
    kcol = tl.arange(0, 32)
    x_off = ((pr * WP + pw) * CP)[:, None] + kcol[None, :]
    w_off = (rows * CP)[:, None] + kcol[None, :]
    x_base = xp_ptr + ((n * DP + td * 2) * HP + th * BH).to(tl.int64) * (WP * CP)
    w_base = wp_ptr + c0 * CP
    acc0 = tl.zeros((64, P), dtype=tl.float32)
    acc1 = tl.zeros((64, P), dtype=tl.float32)
    for t in tl.range(0, 9 * KC, num_stages=NS):
        tap = t // KC
        kc = t % KC
        kh = tap // 3
        kw = tap % 3
        xs = ((2 - kh) * WP + (2 - kw)) * CP + kc * 32
        ws = tap * TAPW + kc * 32
        x0 = tl.load((x_base + xs) + x_off)
        x1 = tl.load((x_base + (xs + PLANE)) + x_off)
        x2 = tl.load((x_base + (xs + 2 * PLANE)) + x_off)
        x3 = tl.load((x_base + (xs + 3 * PLANE)) + x_off)
        w0 = tl.load((w_base + ws) + w_off)
        w1 = tl.load((w_base + (ws + 9 * TAPW)) + w_off)
        w2 = tl.load((w_base + (ws + 18 * TAPW)) + w_off)
        xt0 = tl.trans(x0)
        xt1 = tl.trans(x1)
        xt2 = tl.trans(x2)
        xt3 = tl.trans(x3)
        acc0 = tl.dot(w2, xt0, acc0)
        acc1 = tl.dot(w2, xt1, acc1)
        acc0 = tl.dot(w1, xt1, acc0)
        acc1 = tl.dot(w1, xt2, acc1)
        acc0 = tl.dot(w0, xt2, acc0)
        acc1 = tl.dot(w0, xt3, acc1)

    # 3. Values: even channels have them in the high half of the word, odd ones in the low half.
    shift = tl.where(((nc0 + rows) & 1) == 0, 16, 0)[:, None]
    v_ok = h_ok & (pw < W)
    word0 = TAIL + (td * 2 * OH + qh) * OW + pw
    word1 = word0 + OH * OW
    store_values(
        out_ptr, acc0, chan[:, None] + word0[None, :], shift,
        c_ok[:, None] & v_ok[None, :],
    )
    store_values(
        out_ptr, acc1, chan[:, None] + word1[None, :], shift,
        c_ok[:, None] & (v_ok & (td * 2 + 1 < D))[None, :],
    )


conv_tuned = triton.autotune(
    configs=[
        triton.Config({"NS": 1}, num_warps=4, num_stages=1),
        triton.Config({"NS": 2}, num_warps=4, num_stages=2),
        triton.Config({"NS": 3}, num_warps=4, num_stages=3),
    ],
    key=["C_OUT", "D", "H", "W", "CP"],
)(conv_kernel)


@triton.jit
def fallback_kernel(
    x_ptr, weight_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    out_d: tl.constexpr, out_h: tl.constexpr, out_w: tl.constexpr,
    stride: tl.constexpr, padding: tl.constexpr, dilation: tl.constexpr,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    batch = tl.program_id(1) // C_out
    c_out = tl.program_id(1) % C_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = index // (out_w * out_h)
    x_base = x_ptr + batch.to(tl.int64) * (C_in * D * H * W)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kd in range(KERNEL_SIZE):
        # Input position i feeds output i * stride - padding + k * dilation.
        d = od + padding - kd * dilation
        for kh in range(KERNEL_SIZE):
            h = oh + padding - kh * dilation
            for kw in range(KERNEL_SIZE):
                w = ow + padding - kw * dilation
                on_grid = (d % stride == 0) & (h % stride == 0) & (w % stride == 0)
                inside = (d >= 0) & (h >= 0) & (w >= 0)
                inside &= (d // stride < D) & (h // stride < H) & (w // stride < W)
                mask = valid & on_grid & inside
                position = ((d // stride) * H + h // stride) * W + w // stride
                tap = (kd * KERNEL_SIZE + kh) * KERNEL_SIZE + kw
                for c_in in range(C_in):
                    x = tl.load(x_base + (c_in * (D * H * W) + position), mask=mask, other=0.0)
                    w_offset = (c_in * C_out + c_out) * (KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE)
                    weight = tl.load(weight_ptr + w_offset + tap)
                    acc += x.to(tl.float32) * weight.to(tl.float32)

    y_offset = tl.program_id(1).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + y_offset, acc.to(y_ptr.dtype.element_ty), mask=valid)


def run_fallback(x, weight, stride, padding, dilation):
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = weight.shape[1], weight.shape[2]
    stride, padding, dilation = stride[0], padding[0], dilation[0]
    out_d, out_h, out_w = (
        (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_d * out_h * out_w, 256), N * C_out)
    fallback_kernel[grid](
        x, weight, y,
        C_in, C_out, D, H, W, out_d, out_h, out_w,
        stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=256,
    )
    return y


def fits_fast_path(x, weight, stride, padding, dilation):
    N, C_in, D, H, W = x.shape
    C_out = weight.shape[1]
    same = all(s == 2 for s in stride) and all(p == 1 for p in padding) and all(d == 2 for d in dilation)
    return (
        same
        and tuple(weight.shape[2:]) == (3, 3, 3)
        and weight.shape[0] == C_in
        and x.dtype == torch.bfloat16
        and weight.dtype == torch.bfloat16
        and W <= 128
        and (2 * D + 1) * (2 * H + 1) * (2 * W + 1) < 2 ** 24
        and (C_in + 32) * D * H * W < 2 ** 30
        and (H + 130) * (W + 130) * (C_in + 32) < 2 ** 28
        and C_in * C_out < 2 ** 25
        and N * ((C_out + 63) // 64) <= 65535
    )


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    if not fits_fast_path(x, weight, stride, padding, dilation):
        return run_fallback(x, weight, stride, padding, dilation)

    N, C_in, D, H, W = x.shape
    C_out = weight.shape[1]
    OD, OH, OW = 2 * D + 1, 2 * H + 1, 2 * W + 1
    S = OD * OH * OW
    BW = max(16, triton.next_power_of_2(W))
    BH = max(1, 128 // BW)
    T = (H + BH - 1) // BH
    DB = (D + 1) // 2
    CP = (C_in + 31) // 32 * 32
    CO = (C_out + 63) // 64 * 64
    DP, HP, WP = 2 * DB + 2, T * BH + 2, BW + 2

    numel = N * C_out * S
    words = (numel + 1) // 2
    xp = torch.empty(N * DP * HP * WP * CP, dtype=x.dtype, device=x.device)
    wp = torch.empty(27 * CO * CP, dtype=x.dtype, device=x.device)
    buf = torch.empty(words, dtype=torch.int32, device=x.device)

    wblock = 1024
    wprogs = (27 * CO * CP + wblock - 1) // wblock
    pack_grid = (wprogs + N * DP * ((HP + BH - 1) // BH),)
    pack_kernel[pack_grid](
        x, weight, xp, wp,
        C_IN=C_in, C_OUT=C_out, D=D, H=H, W=W, DP=DP, HP=HP, WP=WP, CP=CP, CO=CO,
        BW=BW, BH=BH, WPROGS=wprogs, WBLOCK=wblock, num_warps=4,
    )

    grid = (T, DB, N * (CO // 64))
    if T * DB * N * (CO // 64) >= 256:
        conv_tuned[grid](
            xp, wp, buf, words,
            C_OUT=C_out, D=D, H=H, W=W, OH=OH, OW=OW, S=S,
            DP=DP, HP=HP, WP=WP, CP=CP, CO=CO, BW=BW, BH=BH,
        )
    else:
        conv_kernel[grid](
            xp, wp, buf, words,
            C_OUT=C_out, D=D, H=H, W=W, OH=OH, OW=OW, S=S,
            DP=DP, HP=HP, WP=WP, CP=CP, CO=CO, BW=BW, BH=BH,
            NS=2, num_warps=4, num_stages=2,
        )
    return buf.view(torch.bfloat16)[:numel].view(N, C_out, OD, OH, OW)
