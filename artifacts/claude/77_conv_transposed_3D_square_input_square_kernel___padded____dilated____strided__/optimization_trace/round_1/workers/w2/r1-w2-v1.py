"""Transposed convolution (stride 2, padding 1, dilation 2, kernel 3) as a dense 3x3x3 'same' convolution.

Only outputs with odd od, oh, ow are nonzero: o = 2q + 1, fed by i = q + 1 - k for all 27 taps.
Kernel 1 only transposes x to channels-last; kernel 2 fetches shifted boxes of it by tensor descriptor
(out-of-range parts arrive as zeros), four output planes a program, and writes aligned 32-bit words,
each of which holds at most one nonzero bfloat16; the zero tails are stored between the taps.
"""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


@triton.jit
def transpose_kernel(
    x_ptr, w_ptr, xp_ptr, wp_ptr,
    C_IN: tl.constexpr, C_OUT: tl.constexpr,
    D: tl.constexpr, HW: tl.constexpr,
    CP: tl.constexpr, CO: tl.constexpr,
    PB: tl.constexpr, WPROGS: tl.constexpr, WBLOCK: tl.constexpr,
):
    NB: tl.constexpr = (HW + PB - 1) // PB
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
        # xp[N, D, H*W, CP] from x[N, C_IN, D, H*W]
        q = pid - WPROGS
        pb = q % NB
        plane = q // NB
        d = plane % D
        n = plane // D
        hw = pb * PB + tl.arange(0, PB)
        c = tl.arange(0, 32)
        hw_ok = hw < HW
        x_base = x_ptr + (n.to(tl.int64) * (C_IN * D) + d) * HW
        xp_base = xp_ptr + plane.to(tl.int64) * (HW * CP)
        for kc in tl.static_range(CP // 32):
            ci = kc * 32 + c
            c_ok = ci < C_IN
            src = ci[:, None] * (D * HW) + hw[None, :]
            dst = (hw * CP)[:, None] + ci[None, :]
            if HW % PB == 0:
                tile = tl.load(x_base + src, mask=c_ok[:, None], other=0.0)
                tl.store(xp_base + dst, tl.trans(tile))
            else:
                tile = tl.load(x_base + src, mask=c_ok[:, None] & hw_ok[None, :], other=0.0)
                tl.store(xp_base + dst, tl.trans(tile), mask=hw_ok[:, None])


@triton.jit
def store_tail(
    out_ptr, m, p, chan, c_ok, limit,
    H: tl.constexpr, OH: tl.constexpr, OW: tl.constexpr,
    TAIL: tl.constexpr, NCHUNK: tl.constexpr, NTOT: tl.constexpr, P: tl.constexpr,
):
    # Chunk m of all the zero tails of these channels; plane -1 is what leads the channel.
    plane = m // NCHUNK - 1
    col = (m % NCHUNK) * P + p
    rel = TAIL + (plane * OH + H) * OW + col
    offs = rel[:, None] + chan[None, :]
    ok = (col < TAIL) & (m < NTOT)
    tl.store(
        out_ptr + offs, tl.zeros((P, 64), dtype=tl.int32),
        mask=ok[:, None] & c_ok[None, :] & (offs < limit),
    )


@triton.jit
def store_rows(
    out_ptr, acc, qd, th, qh, pw, chan, c_ok, shift,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, TAIL: tl.constexpr,
    BW: tl.constexpr, BH: tl.constexpr,
):
    # Rows of one plane: W words with a value, then W + 1 words of zeros.
    row = TAIL + (qd * OH + qh) * OW + pw
    r_ok = (qh < H) & (qd < D)
    bits = acc.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    offs = row[:, None] + chan[None, :]
    tl.store(out_ptr + offs, bits << shift, mask=(r_ok & (pw < W))[:, None] & c_ok[None, :])
    tl.store(
        out_ptr + (offs + W), tl.zeros((BH * BW, 64), dtype=tl.int32),
        mask=(r_ok & (pw < W + 1))[:, None] & c_ok[None, :],
    )
    if W + 1 > BW:
        qe = th * BH + tl.arange(0, BH)
        last = TAIL + (qd * OH + qe) * OW + 2 * W
        l_ok = (qe < H) & (qd < D)
        tl.store(
            out_ptr + (last[:, None] + chan[None, :]), tl.zeros((BH, 64), dtype=tl.int32),
            mask=l_ok[:, None] & c_ok[None, :],
        )


@triton.jit
def conv_kernel(
    x_desc, w_desc, buf_ptr, total_words,
    C_OUT: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    OH: tl.constexpr, OW: tl.constexpr, S: tl.constexpr,
    CP: tl.constexpr, CO: tl.constexpr,
    BW: tl.constexpr, BH: tl.constexpr,
    NS: tl.constexpr,
):
    P: tl.constexpr = BH * BW
    NCO: tl.constexpr = CO // 64
    KC: tl.constexpr = CP // 32
    T: tl.constexpr = (H + BH - 1) // BH
    NPROG: tl.constexpr = T * ((D + 3) // 4)
    TAIL: tl.constexpr = OW * (H + 1)
    NCHUNK: tl.constexpr = (TAIL + P - 1) // P
    NTOT: tl.constexpr = (D + 1) * NCHUNK

    th = tl.program_id(0)
    td = tl.program_id(1)
    pz = tl.program_id(2)
    n = pz // NCO
    c0 = (pz % NCO) * 64
    prog = td * T + th

    p = tl.arange(0, P)
    pw = p % BW
    qh = th * BH + p // BW
    cols = tl.arange(0, 64)

    # Output as 32-bit words: one int64 scalar base, int32 offsets from it.
    nc0 = n * C_OUT + c0
    first = nc0.to(tl.int64) * S + 1
    base = first >> 1
    out_ptr = buf_ptr + base
    chan = ((first & 1).to(tl.int32) + cols * S) >> 1
    c_ok = (c0 + cols) < C_OUT
    limit = tl.minimum(total_words - base, 2147483647).to(tl.int32)

    q0 = td * 4
    acc0 = tl.zeros((P, 64), dtype=tl.float32)
    acc1 = tl.zeros((P, 64), dtype=tl.float32)
    acc2 = tl.zeros((P, 64), dtype=tl.float32)
    acc3 = tl.zeros((P, 64), dtype=tl.float32)
    for t in tl.range(0, 9 * KC, num_stages=NS):
        tap = t // KC
        k0 = (t % KC) * 32
        kh = tap // 3
        kw = tap % 3
        hh = th * BH + 1 - kh
        ww = 1 - kw
        wr = tap * CO + c0
        x0 = tl.reshape(x_desc.load([n, q0 - 1, hh, ww, k0]), (P, 32))
        x1 = tl.reshape(x_desc.load([n, q0, hh, ww, k0]), (P, 32))
        x2 = tl.reshape(x_desc.load([n, q0 + 1, hh, ww, k0]), (P, 32))
        x3 = tl.reshape(x_desc.load([n, q0 + 2, hh, ww, k0]), (P, 32))
        x4 = tl.reshape(x_desc.load([n, q0 + 3, hh, ww, k0]), (P, 32))
        x5 = tl.reshape(x_desc.load([n, q0 + 4, hh, ww, k0]), (P, 32))
        w0 = tl.trans(w_desc.load([wr, k0]))
        w1 = tl.trans(w_desc.load([wr + 9 * CO, k0]))
        w2 = tl.trans(w_desc.load([wr + 18 * CO, k0]))

        # One chunk of zeros a tap, issued while the boxes arrive.
        store_tail(
            out_ptr, t * NPROG + prog, p, chan, c_ok, limit,
            H, OH, OW, TAIL, NCHUNK, NTOT, P,
        )

        acc0 = tl.dot(x0, w2, acc0)
        acc1 = tl.dot(x1, w2, acc1)
        acc2 = tl.dot(x2, w2, acc2)
        acc3 = tl.dot(x3, w2, acc3)
        acc0 = tl.dot(x1, w1, acc0)
        acc1 = tl.dot(x2, w1, acc1)
        acc2 = tl.dot(x3, w1, acc2)
        acc3 = tl.dot(x4, w1, acc3)
        acc0 = tl.dot(x2, w0, acc0)
        acc1 = tl.dot(x3, w0, acc1)
        acc2 = tl.dot(x4, w0, acc2)
        acc3 = tl.dot(x5, w0, acc3)

    # Even channels have the value in the high half of the word, odd ones in the low half.
    shift = tl.where(((nc0 + cols) & 1) == 0, 16, 0)[None, :]
    store_rows(out_ptr, acc0, q0, th, qh, pw, chan, c_ok, shift, D, H, W, OH, OW, TAIL, BW, BH)
    store_rows(out_ptr, acc1, q0 + 1, th, qh, pw, chan, c_ok, shift, D, H, W, OH, OW, TAIL, BW, BH)
    store_rows(out_ptr, acc2, q0 + 2, th, qh, pw, chan, c_ok, shift, D, H, W, OH, OW, TAIL, BW, BH)
    store_rows(out_ptr, acc3, q0 + 3, th, qh, pw, chan, c_ok, shift, D, H, W, OH, OW, TAIL, BW, BH)

    # What the taps left of the tails.
    for m in range(9 * KC * NPROG + prog, NTOT, NPROG):
        store_tail(
            out_ptr, m, p, chan, c_ok, limit,
            H, OH, OW, TAIL, NCHUNK, NTOT, P,
        )


conv_tuned = triton.autotune(
    configs=[
        triton.Config({"NS": 2}, num_warps=8, num_stages=2),
        triton.Config({"NS": 3}, num_warps=8, num_stages=3),
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
    HW = H * W
    BW = max(16, triton.next_power_of_2(W))
    BH = max(1, 128 // BW)
    T = (H + BH - 1) // BH
    DB = (D + 3) // 4
    CP = (C_in + 31) // 32 * 32
    CO = (C_out + 63) // 64 * 64

    numel = N * C_out * S
    words = (numel + 1) // 2
    xp = torch.empty((N, D, H, W, CP), dtype=x.dtype, device=x.device)
    wp = torch.empty((27 * CO, CP), dtype=x.dtype, device=x.device)
    buf = torch.empty(words, dtype=torch.int32, device=x.device)

    wblock = 1024
    wprogs = (27 * CO * CP + wblock - 1) // wblock
    pb = 128
    transpose_kernel[(wprogs + N * D * ((HW + pb - 1) // pb),)](
        x, weight, xp, wp,
        C_IN=C_in, C_OUT=C_out, D=D, HW=HW, CP=CP, CO=CO,
        PB=pb, WPROGS=wprogs, WBLOCK=wblock, num_warps=4,
    )

    x_desc = TensorDescriptor(
        xp, [N, D, H, W, CP], [D * HW * CP, HW * CP, W * CP, CP, 1], [1, 1, BH, BW, 32]
    )
    w_desc = TensorDescriptor(wp, [27 * CO, CP], [CP, 1], [64, 32])
    grid = (T, DB, N * (CO // 64))
    if T * DB * N * (CO // 64) >= 256:
        conv_tuned[grid](
            x_desc, w_desc, buf, words,
            C_OUT=C_out, D=D, H=H, W=W, OH=OH, OW=OW, S=S,
            CP=CP, CO=CO, BW=BW, BH=BH,
        )
    else:
        conv_kernel[grid](
            x_desc, w_desc, buf, words,
            C_OUT=C_out, D=D, H=H, W=W, OH=OH, OW=OW, S=S,
            CP=CP, CO=CO, BW=BW, BH=BH,
            NS=2, num_warps=8, num_stages=2,
        )
    return buf.view(torch.bfloat16)[:numel].view(N, C_out, OD, OH, OW)
