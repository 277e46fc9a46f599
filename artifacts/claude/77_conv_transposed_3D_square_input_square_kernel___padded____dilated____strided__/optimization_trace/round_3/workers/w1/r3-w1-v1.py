"""Transposed 3-D convolution: pointer operands with scalar bases, end-plane taps skipped, epilogue in two channel halves."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose3d_fallback(
    x_ptr, weight_ptr, y_ptr,
    C_in, C_out, D, H, W, out_d, out_h, out_w,
    stride, padding, dilation,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    batch = tl.program_id(1) // C_out
    c_out = tl.program_id(1) % C_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = index // (out_w * out_h)

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
                    x_offset = (batch * C_in + c_in) * D * H * W + position
                    x = tl.load(x_ptr + x_offset, mask=mask, other=0.0)
                    w_offset = (c_in * C_out + c_out) * KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE
                    weight = tl.load(weight_ptr + w_offset + tap)
                    acc += x.to(tl.float32) * weight.to(tl.float32)

    y_offset = tl.program_id(1).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + y_offset, acc.to(y_ptr.dtype.element_ty), mask=valid)


@triton.jit
def zero_lines(y_ptr, l0, l1, A: tl.constexpr, CHUNKS: tl.constexpr):
    """Zero the lines [l0, l1) of A words each: aligned 16-byte stores, no heads, no tails."""
    o0 = l0 * A
    end = l1 * A
    lane = tl.arange(0, 1024)
    z = tl.zeros((1024,), dtype=tl.int32)
    if CHUNKS <= 4:
        for i in tl.static_range(CHUNKS):
            o = o0 + i * 1024 + lane
            tl.store(y_ptr + o, z, mask=o < end)
    else:
        for b0 in range(o0, end, 1024):
            ob = b0 + lane
            tl.store(y_ptr + ob, z, mask=ob < end)


@triton.jit
def prep_kernel(
    w_ptr, wp_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr, CO_PAD: tl.constexpr,
    NPACK: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    A: tl.constexpr, LA: tl.constexpr,
):
    """Pack the weights as wp[chunk][tap][co][ci]; zero the lines between two channels."""
    OW: tl.constexpr = 2 * W + 1
    PW: tl.constexpr = (2 * H + 1) * OW
    S: tl.constexpr = (2 * D + 1) * PW
    CB: tl.constexpr = CO_PAD // 64
    CHUNKS: tl.constexpr = ((H + 1) * OW + A + 1023) // 1024
    pid = tl.program_id(0)
    if pid < NPACK:
        cb = pid % CB
        rest = pid // CB
        tap = rest % 27
        chunk = rest // 27
        co = cb * 64 + tl.arange(0, 64)
        cl = tl.arange(0, 32)
        ci = chunk * 32 + cl
        src = (ci[None, :] * C_out + co[:, None]) * 27 + tap
        mask = (co[:, None] < C_out) & (ci[None, :] < C_in)
        v = tl.load(w_ptr + src, mask=mask, other=0.0)
        dst = (rest * CO_PAD + co[:, None]) * 32 + cl[None, :]
        tl.store(wp_ptr + dst, v)
    else:
        j = pid - NPACK
        begin = (j * S + (PW + OW + 1)) >> 1
        before = (((j - 1) * S + (PW + OW + 1)) >> 1) + D * PW
        l0 = tl.where(j == 0, 0, before >> LA)
        l1 = begin >> LA
        zero_lines(y_ptr, l0, l1, A, CHUNKS)


@triton.jit
def zero_job(
    y_ptr, job, hb, d, n, cb, c_end,
    N: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr,
    OW: tl.constexpr, PW: tl.constexpr, S: tl.constexpr,
    A: tl.constexpr, LA: tl.constexpr, LAST: tl.constexpr,
    CHUNKS: tl.constexpr, NHB: tl.constexpr,
):
    """Zero one run of at most 1024 words of a gap behind the rows of plane d."""
    slot = job // CHUNKS
    part = job % CHUNKS
    c = hb + slot * NHB
    nc = n * C_out + cb * 64 + tl.minimum(c, c_end - 1)
    b = (nc * S + (PW + OW + 1)) >> 1
    l0 = (b + d * PW + H * OW) >> LA
    l1 = (b + (d + 1) * PW) >> LA
    l1 = tl.where((nc == N * C_out - 1) & (d == D - 1), LAST, l1)
    l1 = tl.where(c < c_end, l1, 0)
    o = l0 * A + part * 1024 + tl.arange(0, 1024)
    tl.store(y_ptr + o, tl.zeros((1024,), dtype=tl.int32), mask=o < l1 * A)


@triton.jit
def collapse(acc0, acc1, acc2, W: tl.constexpr, BW: tl.constexpr, P: tl.constexpr):
    """y[w] = acc1[w] + acc0[w + 1] + acc2[w - 1]: add what meets inside one thread."""
    HB: tl.constexpr = BW // 2
    a0e, a0o = tl.split(tl.reshape(acc0, (64, P // 2, 2)))
    a1e, a1o = tl.split(tl.reshape(acc1, (64, P // 2, 2)))
    a2e, a2o = tl.split(tl.reshape(acc2, (64, P // 2, 2)))
    # Columns that must not wrap round, or lie outside, become zero.
    m = tl.arange(0, P // 2) % HB
    if W != BW:
        in_e = (2 * m < W)[None, :]
        in_o = (2 * m + 1 < W)[None, :]
        a0e = tl.where(in_e, a0e, 0.0)
        a0o = tl.where(in_o, a0o, 0.0)
        a1e = tl.where(in_e, a1e, 0.0)
        a1o = tl.where(in_o, a1o, 0.0)
        a2e = tl.where((2 * m < W - 1)[None, :], a2e, 0.0)
    pe = a1e + a0o
    po = a1o + a2e
    a0e = tl.where((m >= 1)[None, :], a0e, 0.0)
    a2o = tl.where((2 * m + 1 < W - 1)[None, :], a2o, 0.0)
    return pe, po, a2o, a0e


@triton.jit
def halve(t, P: tl.constexpr, R: tl.constexpr, HB: tl.constexpr):
    """Part along channel bit 3, a register bit of the matrix layout."""
    t = tl.permute(tl.reshape(t, (4, 2, 8, P // 2)), (0, 2, 3, 1))
    t0, t1 = tl.split(t)
    return tl.reshape(t0, (32 * R, HB)), tl.reshape(t1, (32 * R, HB))


@triton.jit
def emit_half(
    y_ptr, pe, po, a2o, a0e, par, row0, c_left, h_left,
    HALF: tl.constexpr, R: tl.constexpr, W: tl.constexpr, BW: tl.constexpr,
    OW: tl.constexpr, S: tl.constexpr, A: tl.constexpr, LA: tl.constexpr,
):
    """Turn and store the rows of 32 channels; a row owns the lines up to the next row's first."""
    QH: tl.constexpr = 32 * R
    HB: tl.constexpr = BW // 2
    q = tl.arange(0, QH)
    cq = q // R
    cl = (cq // 8) * 16 + HALF * 8 + cq % 8
    hh = q % R
    v = par + cl * S
    row = row0 + (v >> 1) + hh * OW
    shift = (v & 1) * 16
    s = row & (A - 1)
    ok_row = (cl < c_left) & (hh < h_left)

    m = tl.arange(0, HB)
    odd = s & 1
    je = (m[None, :] - (s >> 1)[:, None]) & (HB - 1)
    ge = tl.gather(pe, je, 1) + tl.gather(a2o, (je - 1) & (HB - 1), 1)
    jo = (m[None, :] - ((s >> 1) + odd)[:, None]) & (HB - 1)
    go = tl.gather(po, jo, 1) + tl.gather(a0e, (jo + 1) & (HB - 1), 1)
    swap = (odd == 1)[:, None]
    lo = tl.where(swap, go, ge).to(tl.bfloat16)
    hi_half = tl.where(swap, ge, go).to(tl.bfloat16)
    half = tl.reshape(tl.join(lo, hi_half), (QH, BW))
    bits = half.to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF
    word = bits << shift[:, None]

    k = tl.arange(0, BW)
    inner = k[None, :] >= s[:, None]
    ptr = y_ptr + ((row >> LA)[:, None] * A + k[None, :])
    ok1 = tl.broadcast_to(ok_row[:, None], (QH, BW))
    ok2 = ok1
    if (OW // A) * A < 2 * BW:
        nl0 = ((row + OW) >> LA) - (row >> LA)
        ok1 = ok1 & ((k // A)[None, :] < nl0[:, None])
        ok2 = ok2 & (((k + BW) // A)[None, :] < nl0[:, None])
    tl.store(ptr, tl.where(inner, word, 0), mask=ok1)
    tl.store(ptr + BW, tl.where(inner, 0, word), mask=ok2)
    if 2 * W + A > 2 * BW:
        # The one more line of zeros that a few rows own.
        nl = ((row + OW) >> LA) - (row >> LA)
        ka = tl.arange(0, A)
        ok3 = ok_row & (nl > (2 * BW) // A)
        ptr3 = y_ptr + ((row >> LA)[:, None] * A + (ka + 2 * BW)[None, :])
        tl.store(
            ptr3,
            tl.zeros((QH, A), dtype=tl.int32),
            mask=tl.broadcast_to(ok3[:, None], (QH, A)),
        )


@triton.autotune(
    configs=[
        triton.Config({"P": 64}, num_warps=4, num_stages=3, maxnreg=128),
        triton.Config({"P": 64}, num_warps=8, num_stages=3, maxnreg=80),
        triton.Config({"P": 64}, num_warps=8, num_stages=3, maxnreg=64),
        triton.Config({"P": 128}, num_warps=8, num_stages=3, maxnreg=128),
        triton.Config({"P": 128}, num_warps=8, num_stages=4, maxnreg=128),
    ],
    key=["N", "C_in", "C_out", "D", "H", "W"],
)
@triton.jit
def conv_kernel(
    x_ptr, wp_ptr, y_ptr,
    N: tl.constexpr, C_in: tl.constexpr, C_out: tl.constexpr, CO_PAD: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BW: tl.constexpr,
    A: tl.constexpr, LA: tl.constexpr,
    P: tl.constexpr,
):
    OW: tl.constexpr = 2 * W + 1
    PW: tl.constexpr = (2 * H + 1) * OW
    S: tl.constexpr = (2 * D + 1) * PW
    NW: tl.constexpr = (N * C_out * S + 1) // 2
    LAST: tl.constexpr = (NW + A - 1) // A
    CB: tl.constexpr = CO_PAD // 64
    KC: tl.constexpr = (C_in + 31) // 32
    R: tl.constexpr = P // BW
    HB: tl.constexpr = BW // 2
    NHB: tl.constexpr = (H + R - 1) // R
    CHUNKS: tl.constexpr = ((H + 1) * OW + A + 1023) // 1024

    hb = tl.program_id(0)
    d = tl.program_id(1)
    n = tl.program_id(2) // CB
    cb = tl.program_id(2) % CB
    h0 = hb * R
    c_end = tl.minimum(C_out - cb * 64, 64)

    # The gaps behind the rows of plane d are cut into jobs of 1024 words, JP an iteration below.
    CPP: tl.constexpr = (64 + NHB - 1) // NHB
    JP: tl.constexpr = (CPP * CHUNKS + 9 * KC - 1) // (9 * KC)

    acc0 = tl.zeros((64, P), dtype=tl.float32)
    acc1 = tl.zeros((64, P), dtype=tl.float32)
    acc2 = tl.zeros((64, P), dtype=tl.float32)

    p = tl.arange(0, P)
    r = p // BW
    w = p % BW
    cl = tl.arange(0, 32)
    co = tl.arange(0, 64)
    tile = co[:, None] * 32 + cl[None, :]
    # One offset tensor for all trips; a trip moves scalar bases only.
    x_offs = cl[:, None] * (D * H * W) + (r * W + w)[None, :]
    x_base = x_ptr + (n * (C_in * D * H * W) + (d + 1) * (H * W) + (h0 + 1) * W)
    w_base = wp_ptr + cb * (64 * 32)
    top = h0 + 1 + r

    # Depth taps outside the volume are left out: kd 0 reads plane d + 1, kd 2 plane d - 1.
    first_u = tl.where(d == D - 1, 3, 0)
    last_u = tl.where(d == 0, 6, 9)
    t0 = first_u * KC
    t1 = last_u * KC

    for t in tl.range(t0, t1):
        u = t // KC
        chunk = t % KC
        kd = u // 3
        kh = u % 3
        hi = top - kh
        ok_x = (hi >= 0) & (hi < H)
        if W != BW:
            ok_x = ok_x & (w < W)
        mask_x = ok_x[None, :]
        if C_in % 32 != 0:
            mask_x = mask_x & ((chunk * 32 + cl) < C_in)[:, None]
        xp = x_base + (chunk * (32 * D * H * W) - kd * (H * W) - kh * W)
        xt = tl.load(xp + x_offs, mask=mask_x, other=0.0)
        wp = w_base + (chunk * 27 + u * 3) * (CO_PAD * 32)
        w0 = tl.load(wp + tile)
        w1 = tl.load(wp + CO_PAD * 32 + tile)
        w2 = tl.load(wp + 2 * CO_PAD * 32 + tile)
        acc0 = tl.dot(w0, xt, acc0)
        acc1 = tl.dot(w1, xt, acc1)
        acc2 = tl.dot(w2, xt, acc2)
        for i in tl.static_range(JP):
            zero_job(
                y_ptr, (t - t0) * JP + i, hb, d, n, cb, c_end,
                N, C_out, D, H, OW, PW, S, A, LA, LAST, CHUNKS, NHB,
            )

    # 96 values a thread become 64 before any row or index tensor exists; then two halves in turn.
    pe, po, a2o, a0e = collapse(acc0, acc1, acc2, W, BW, P)
    pe0, pe1 = halve(pe, P, R, HB)
    po0, po1 = halve(po, P, R, HB)
    b0, b1 = halve(a2o, P, R, HB)
    f0, f1 = halve(a0e, P, R, HB)
    e_base = (n * C_out + cb * 64) * S + (PW + OW + 1)
    par = e_base & 1
    row0 = (e_base >> 1) + d * PW + h0 * OW
    c_left = C_out - cb * 64
    h_left = H - h0
    emit_half(y_ptr, pe0, po0, b0, f0, par, row0, c_left, h_left, 0, R, W, BW, OW, S, A, LA)
    tl.debug_barrier()
    emit_half(y_ptr, pe1, po1, b1, f1, par, row0, c_left, h_left, 1, R, W, BW, OW, S, A, LA)

    # Jobs that the shorter loops of the end planes left over.
    for job in range((t1 - t0) * JP, CPP * CHUNKS):
        zero_job(
            y_ptr, job, hb, d, n, cb, c_end,
            N, C_out, D, H, OW, PW, S, A, LA, LAST, CHUNKS, NHB,
        )


def run_fallback(x, weight, stride, padding, dilation):
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = weight.shape[1], weight.shape[2]
    stride, padding, dilation = stride[0], padding[0], dilation[0]
    out_d, out_h, out_w = (
        (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_d * out_h * out_w, 256), N * C_out)
    conv_transpose3d_fallback[grid](
        x, weight, y,
        C_in, C_out, D, H, W, out_d, out_h, out_w,
        stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=256,
    )
    return y


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C_in, D, H, W = x.shape
    C_out = weight.shape[1]
    S = (2 * D + 1) * (2 * H + 1) * (2 * W + 1)
    CO_PAD = triton.cdiv(C_out, 64) * 64
    KC = triton.cdiv(C_in, 32)
    fast = (
        x.dtype == torch.bfloat16
        and weight.dtype == torch.bfloat16
        and tuple(weight.shape[2:]) == (3, 3, 3)
        and tuple(stride) == (2, 2, 2)
        and tuple(padding) == (1, 1, 1)
        and tuple(dilation) == (2, 2, 2)
        and W <= 64
        and D <= 65535
        and N * (CO_PAD // 64) <= 65535
        and (N * C_out + 64) * S < 2**31
        and (N * C_in + 64) * D * H * W < 2**31
    )
    if not fast:
        return run_fallback(x, weight, stride, padding, dilation)

    # A line: the words before a row's first value, and after its last, in its lines are zeros.
    A = 2
    while 2 * A <= min(W + 2, 32):
        A *= 2
    LA = A.bit_length() - 1

    numel = N * C_out * S
    words = triton.cdiv((numel + 1) // 2, A) * A
    buf = torch.empty(words, dtype=torch.int32, device=x.device)
    wp = torch.empty((KC * 27 * CO_PAD, 32), dtype=x.dtype, device=x.device)
    n_pack = KC * 27 * (CO_PAD // 64)
    prep_kernel[(n_pack + N * C_out,)](
        weight, wp, buf,
        C_in=C_in, C_out=C_out, CO_PAD=CO_PAD, NPACK=n_pack, D=D, H=H, W=W, A=A, LA=LA,
        num_warps=4,
    )
    BW = max(16, triton.next_power_of_2(W))
    grid = lambda meta: (triton.cdiv(H, meta["P"] // BW), D, N * (CO_PAD // 64))
    conv_kernel[grid](
        x, wp, buf,
        N=N, C_in=C_in, C_out=C_out, CO_PAD=CO_PAD, D=D, H=H, W=W, BW=BW, A=A, LA=LA,
    )
    y = buf.view(torch.bfloat16)[:numel]
    return y.view(N, C_out, 2 * D + 1, 2 * H + 1, 2 * W + 1)
