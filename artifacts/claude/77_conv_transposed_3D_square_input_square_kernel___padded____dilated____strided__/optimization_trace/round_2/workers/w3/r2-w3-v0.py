"""Transposed convolution in three dimensions: one rotating accumulator for the odd outputs, zeros stored between the products."""

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
def zero_words(y_ptr, g0, g1, BLK: tl.constexpr):
    """Zero the 4-byte words [g0, g1): 16-byte stores inside, single words at the ends."""
    a0 = ((g0 + 3) // 4) * 4
    a1 = (g1 // 4) * 4
    for i in range(a0, a1, BLK):
        o = i + tl.arange(0, BLK)
        tl.store(y_ptr + o, tl.zeros((BLK,), dtype=tl.int32), mask=o < a1)
    e = tl.arange(0, 4)
    z = tl.zeros((4,), dtype=tl.int32)
    head = g0 + e
    tl.store(y_ptr + head, z, mask=(head < a0) & (head < g1))
    tail = a1 + e
    tl.store(y_ptr + tail, z, mask=(tail >= g0) & (tail < g1))


@triton.jit
def zero_chunk(
    y_ptr, j, hb, d, nc0, c_end,
    NHB: tl.constexpr, G: tl.constexpr, ZB: tl.constexpr, NW: tl.constexpr,
    S: tl.constexpr, PW: tl.constexpr, OW: tl.constexpr, H: tl.constexpr,
):
    """Chunk j of this program's gaps: ZB words in aligned 16-byte stores."""
    c = hb + NHB * (j // G)
    nc = nc0 + tl.minimum(c, 63)
    b = ((nc * S + (PW + OW + 1)) >> 1) + d * PW
    g0 = b + H * OW
    g1 = tl.minimum(b + PW, NW)
    a0 = tl.multiple_of(((g0 + 3) // 4) * 4, 4)
    a1 = tl.multiple_of((g1 // 4) * 4, 4)
    o = a0 + (j % G) * ZB + tl.arange(0, ZB)
    tl.store(y_ptr + o, tl.zeros((ZB,), dtype=tl.int32), mask=(o < a1) & (c < c_end))


@triton.jit
def zero_edges(
    y_ptr, hb, d, nc0, c_end,
    NHB: tl.constexpr, NW: tl.constexpr,
    S: tl.constexpr, PW: tl.constexpr, OW: tl.constexpr, H: tl.constexpr,
):
    """The words before and after the aligned part of every gap of this program."""
    c = hb + NHB * tl.arange(0, 64)
    k = tl.arange(0, 8)[None, :]
    nc = nc0 + tl.minimum(c, 63)
    b = ((nc * S + (PW + OW + 1)) >> 1) + d * PW
    g0 = (b + H * OW)[:, None]
    g1 = tl.minimum(b + PW, NW)[:, None]
    a0 = ((g0 + 3) // 4) * 4
    a1 = (g1 // 4) * 4
    o = tl.where(k < 4, g0 + k, a1 + (k - 4))
    head = (k < 4) & (o < a0) & (o < g1)
    tail = (k >= 4) & (o >= g0) & (o < g1)
    ok = (head | tail) & (c < c_end)[:, None]
    tl.store(y_ptr + o, tl.zeros((64, 8), dtype=tl.int32), mask=ok)


@triton.jit
def prep_kernel(
    w_ptr, wp_ptr, y_ptr,
    C_in: tl.constexpr, C_out: tl.constexpr, CO_PAD: tl.constexpr,
    NPACK: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
):
    """Pack the weights as wp[chunk][tap][co][ci]; zero the words between two channels."""
    OW: tl.constexpr = 2 * W + 1
    PW: tl.constexpr = (2 * H + 1) * OW
    S: tl.constexpr = (2 * D + 1) * PW
    CB: tl.constexpr = CO_PAD // 64
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
        lo = tl.where(j == 0, 0, before)
        zero_words(y_ptr, lo, begin, 1024)


@triton.jit
def value_bits(v):
    return v.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 0xFFFF


@triton.autotune(
    configs=[
        triton.Config({"P": 128, "ZB": 1024}, num_warps=8, num_stages=4, maxnreg=80),
        triton.Config({"P": 128, "ZB": 1024}, num_warps=8, num_stages=3, maxnreg=64),
        triton.Config({"P": 128, "ZB": 1024}, num_warps=8, num_stages=4, maxnreg=128),
        triton.Config({"P": 256, "ZB": 1024}, num_warps=8, num_stages=3, maxnreg=128),
        triton.Config({"P": 256, "ZB": 2048}, num_warps=16, num_stages=3, maxnreg=64),
        triton.Config({"P": 64, "ZB": 512}, num_warps=4, num_stages=4, maxnreg=96),
    ],
    key=["N", "C_in", "C_out", "D", "H", "W"],
)
@triton.jit
def conv_kernel(
    x_ptr, wp_ptr, y_ptr,
    N: tl.constexpr, C_in: tl.constexpr, C_out: tl.constexpr, CO_PAD: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, BW: tl.constexpr,
    P: tl.constexpr, ZB: tl.constexpr,
):
    OW: tl.constexpr = 2 * W + 1
    PW: tl.constexpr = (2 * H + 1) * OW
    S: tl.constexpr = (2 * D + 1) * PW
    NW: tl.constexpr = (N * C_out * S + 1) // 2
    CB: tl.constexpr = CO_PAD // 64
    KC: tl.constexpr = (C_in + 31) // 32
    R: tl.constexpr = P // BW
    Q: tl.constexpr = 64 * R
    NHB: tl.constexpr = (H + R - 1) // R
    # Gaps of a program, chunks of a gap, chunks of an iteration.
    CG: tl.constexpr = (64 + NHB - 1) // NHB
    G: tl.constexpr = ((H + 1) * OW + ZB - 1) // ZB
    STEPS: tl.constexpr = 27 * KC
    REP: tl.constexpr = (CG * G + STEPS - 1) // STEPS

    hb = tl.program_id(0)
    d = tl.program_id(1)
    n = tl.program_id(2) // CB
    cb = tl.program_id(2) % CB
    h0 = hb * R
    c_end = tl.minimum(C_out - cb * 64, 64)
    nc0 = n * C_out + cb * 64
    zero_edges(y_ptr, hb, d, nc0, c_end, NHB, NW, S, PW, OW, H)

    p = tl.arange(0, P)
    r = p // BW
    w = p % BW
    cl = tl.arange(0, 32)
    co = tl.arange(0, 64)
    w_tile = co[:, None] * 32 + cl[None, :]
    x_tile = cl[:, None] * (D * H * W) + (r * W + w)[None, :]
    x_base = n * (C_in * D * H * W) + (d + 1) * (H * W) + (h0 + 1) * W
    top = h0 + 1 + r

    # Where each row of 2 * W + 1 words goes, and which half of a word holds the value.
    wv = tl.arange(0, BW)
    q = tl.arange(0, Q)
    c_row = cb * 64 + q // R
    h_row = h0 + q % R
    e_row = (n * C_out + c_row) * S + (PW + OW + 1)
    row = (e_row >> 1) + d * PW + h_row * OW
    shift = (e_row & 1) * 16
    ok_row = (c_row < C_out) & (h_row < H)

    # Column w + 1 of the same row of positions; the last column takes column 0, unused.
    nxt = tl.broadcast_to(tl.where(wv + 1 < W, wv + 1, 0)[None, :], (Q, BW))

    # y[w] = acc0[w + 1] + acc1[w] + acc2[w - 1]: one accumulator, moved a column to the
    # left after each of the first two width taps.
    acc = tl.zeros((64, P), dtype=tl.float32)
    for kw in tl.static_range(3):
        for t in tl.range(0, 9 * KC):
            chunk = t // 9
            u = t % 9
            kd = u // 3
            kh = u % 3
            hi = top - kh
            di = d + 1 - kd
            ok_x = (hi >= 0) & (hi < H) & ((di >= 0) & (di < D))
            if W != BW:
                ok_x = ok_x & (w < W)
            mask_x = ok_x[None, :]
            if C_in % 32 != 0:
                mask_x = mask_x & ((chunk * 32 + cl) < C_in)[:, None]
            x_at = x_base + chunk * (32 * D * H * W) - kd * (H * W) - kh * W
            xt = tl.load(x_ptr + x_at + x_tile, mask=mask_x, other=0.0)
            w_at = ((chunk * 27 + u * 3 + kw) * CO_PAD + cb * 64) * 32
            wt = tl.load(wp_ptr + w_at + w_tile)
            acc = tl.dot(wt, xt, acc)
            # A share of the all-zero gaps behind the rows of plane d.
            for i in tl.static_range(REP):
                zero_chunk(
                    y_ptr, (kw * 9 * KC + t) * REP + i, hb, d, nc0, c_end,
                    NHB, G, ZB, NW, S, PW, OW, H,
                )
        if kw == 0:
            a = tl.gather(tl.reshape(acc, (Q, BW)), nxt, 1)
            a = tl.where((wv + 1 < W)[None, :], a, 0.0)
            acc = tl.reshape(a, (64, P))
        if kw == 1:
            # y[0] is complete and has no column in the last frame: store it now.
            a = tl.reshape(acc, (Q, BW))
            first = tl.sum(tl.where((wv == 0)[None, :], a, 0.0), 1)
            tl.store(y_ptr + row, value_bits(first) << shift, mask=ok_row)
            acc = tl.reshape(tl.gather(a, nxt, 1), (64, P))

    # Now column w holds y[w + 1]; the last one holds nothing and stores the zero at row + W.
    y = tl.reshape(acc, (Q, BW))
    y = tl.where((wv + 1 < W)[None, :], y, 0.0)
    word = value_bits(y) << shift[:, None]
    ptr = y_ptr + (row[:, None] + wv[None, :])
    ok = ok_row[:, None] & (wv < W)[None, :]
    tl.store(ptr + 1, word, mask=ok)
    tl.store(ptr + (W + 1), tl.zeros((Q, BW), dtype=tl.int32), mask=ok)


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

    numel = N * C_out * S
    buf = torch.empty((numel + 1) // 2, dtype=torch.int32, device=x.device)
    wp = torch.empty((KC * 27 * CO_PAD, 32), dtype=x.dtype, device=x.device)
    n_pack = KC * 27 * (CO_PAD // 64)
    prep_kernel[(n_pack + N * C_out,)](
        weight, wp, buf,
        C_in=C_in, C_out=C_out, CO_PAD=CO_PAD, NPACK=n_pack, D=D, H=H, W=W,
        num_warps=4,
    )
    BW = max(16, triton.next_power_of_2(W))
    grid = lambda meta: (triton.cdiv(H, meta["P"] // BW), D, N * (CO_PAD // 64))
    conv_kernel[grid](
        x, wp, buf,
        N=N, C_in=C_in, C_out=C_out, CO_PAD=CO_PAD, D=D, H=H, W=W, BW=BW,
    )
    y = buf.view(torch.bfloat16)[:numel]
    return y.view(N, C_out, 2 * D + 1, 2 * H + 1, 2 * W + 1)
