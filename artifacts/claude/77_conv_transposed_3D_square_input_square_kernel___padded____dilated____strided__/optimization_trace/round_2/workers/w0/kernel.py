"""Transposed 3-D convolution (kernel 3, stride 2, padding 1, dilation 2): partial sums per
width tap on the matrix units, added by column pairs; aligned 32-byte output units, one owner each."""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose3d_kernel(
    x_ptr, weight_ptr, y_ptr,
    C_in, C_out, D, H, W, out_d, out_h, out_w,
    stride, padding, dilation,
    KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr,
):
    # Fallback for other parameters: one lane gathers one output.
    batch = tl.program_id(1) // C_out
    c_out = tl.program_id(1) % C_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = (index // out_w) % out_h
    od = index // (out_w * out_h)

    acc = tl.zeros((BLOCK,), dtype=tl.float32)
    for kd in range(KERNEL_SIZE):
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
                    x_offset = (batch * C_in + c_in).to(tl.int64) * D * H * W + position
                    x = tl.load(x_ptr + x_offset, mask=mask, other=0.0)
                    w_offset = (c_in * C_out + c_out) * KERNEL_SIZE * KERNEL_SIZE * KERNEL_SIZE
                    weight = tl.load(weight_ptr + w_offset + tap)
                    acc += x.to(tl.float32) * weight.to(tl.float32)

    y_offset = tl.program_id(1).to(tl.int64) * (out_d * out_h * out_w) + index
    tl.store(y_ptr + y_offset, acc.to(y_ptr.dtype.element_ty), mask=valid)


def _fallback(x, weight, stride, padding, dilation):
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = weight.shape[1], weight.shape[2]
    stride, padding, dilation = stride[0], padding[0], dilation[0]
    out_d, out_h, out_w = (
        (size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W)
    )
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_d * out_h * out_w, 256), N * C_out)
    conv_transpose3d_kernel[grid](
        x, weight, y,
        C_in, C_out, D, H, W, out_d, out_h, out_w,
        stride, padding, dilation,
        KERNEL_SIZE=kernel_size, BLOCK=256,
    )
    return y


@triton.jit
def pack_weight_kernel(
    w_ptr, wt_ptr,
    C_IN: tl.constexpr, C: tl.constexpr, CP: tl.constexpr, BK: tl.constexpr, COP: tl.constexpr,
):
    # weight -> wt[27, COP, CP], taps flipped, channels in contiguous, zero padded.
    r = tl.program_id(0)
    kk = tl.program_id(2) * BK + tl.arange(0, BK)
    m = tl.program_id(1) * 64 + tl.arange(0, 64)
    mask = (m < C)[:, None] & (kk < C_IN)[None, :]
    v = tl.load(w_ptr + (kk[None, :] * C + m[:, None]) * 27 + (26 - r), mask=mask, other=0.0)
    tl.store(wt_ptr + (r * COP + m[:, None]) * CP + kk[None, :], v)


@triton.autotune(
    configs=[
        triton.Config({"BP": 128, "ZIN": 2}, num_warps=8, num_stages=4, maxnreg=128),
        triton.Config({"BP": 128, "ZIN": 0}, num_warps=8, num_stages=4, maxnreg=128),
        triton.Config({"BP": 128, "ZIN": 2}, num_warps=8, num_stages=3, maxnreg=128),
        triton.Config({"BP": 128, "ZIN": 2}, num_warps=4, num_stages=3),
    ],
    key=["N", "C_IN", "C", "D", "H", "W"],
)
@triton.jit
def conv_kernel(
    x_ptr, wt_ptr, y_ptr,
    N: tl.constexpr, C_IN: tl.constexpr, C: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    CP: tl.constexpr, BK: tl.constexpr, COP: tl.constexpr, BW: tl.constexpr,
    AL: tl.constexpr, LOG: tl.constexpr, TOTP: tl.constexpr,
    BP: tl.constexpr, ZIN: tl.constexpr,
):
    BM: tl.constexpr = 64
    TH: tl.constexpr = BP // BW
    R: tl.constexpr = BM * TH
    TILES: tl.constexpr = (H + TH - 1) // TH
    OW: tl.constexpr = 2 * W + 1
    A: tl.constexpr = (2 * H + 1) * OW
    V: tl.constexpr = (2 * D + 1) * A
    KB: tl.constexpr = CP // BK
    WSTEP: tl.constexpr = COP * CP
    # Gaps: CH channels at a time, ZW words of each.
    NEED: tl.constexpr = (BM + TILES - 1) // TILES
    CH: tl.constexpr = 64 if NEED > 32 else (32 if NEED > 16 else (16 if NEED > 8 else (
        8 if NEED > 4 else (4 if NEED > 2 else (2 if NEED > 1 else 1)))))
    ZW: tl.constexpr = 1024 // CH
    STEPS_MID: tl.constexpr = (A - H * OW + AL + ZW - 1) // ZW
    STEPS_LAST: tl.constexpr = ((V + 1) // 2 - (D - 1) * A - H * OW + 2 * AL + ZW - 1) // ZW
    HEAD: tl.constexpr = ((A + OW + 1) // 2) // AL * AL

    pid = tl.program_id(0)
    cb = tl.program_id(1)
    tile = pid % TILES
    t = pid // TILES
    qd = t % D
    n = t // D
    h0 = tile * TH
    c0 = cb * BM

    # The zero words behind plane qd, for this program's channels, in whole aligned units.
    z_local = tile * CH + tl.arange(0, CH)
    z_nc = n * C + c0 + z_local
    z_base = (z_nc * V + (2 * qd + 1) * A + OW + 1) >> 1
    z_next = ((z_nc + 1) * V + A + OW + 1) >> 1
    z_stop = tl.where(qd == D - 1, tl.where(z_nc == N * C - 1, TOTP, z_next), z_base + A)
    z_stop = tl.where((z_local < BM) & (c0 + z_local < C), z_stop, 0)
    z_from = ((z_base + H * OW) >> LOG) * AL
    z_end = ((z_stop >> LOG) * AL)[:, None]
    z_offs = z_from[:, None] + tl.arange(0, ZW)[None, :]
    z_val = tl.zeros((CH, ZW), dtype=tl.int32)
    steps = tl.where(qd == D - 1, STEPS_LAST, STEPS_MID)

    # A tile spans whole rows: x is read where it lies, 16 bytes a lane, without a width halo.
    p = tl.arange(0, BP)
    k = tl.arange(0, BK)
    hh = p // BW
    ww = p % BW
    x_offs = k[:, None] * (D * H * W) + (hh * W + ww)[None, :]
    w_offs = tl.arange(0, BM)[:, None] * CP + k[None, :]
    x_base = x_ptr + (n * (C_IN * D * H * W) + (qd - 1) * (H * W) + (h0 - 1) * W)
    w_base = wt_ptr + c0 * CP
    top = h0 - 1 + hh

    # Depth taps outside the volume are left out.
    lo = tl.where(qd == 0, 3, 0)
    hi = tl.where(qd == D - 1, 6, 9)

    acc0 = tl.zeros((BM, BP), dtype=tl.float32)
    acc1 = tl.zeros((BM, BP), dtype=tl.float32)
    acc2 = tl.zeros((BM, BP), dtype=tl.float32)
    for it in range(lo * KB, hi * KB):
        r = it // KB
        kb = it % KB
        rd = r // 3
        rh = r % 3
        row = top + rh
        inside = (row >= 0) & (row < H)
        if W != BW:
            inside = inside & (ww < W)
        mask = inside[None, :] & ((k + kb * BK) < C_IN)[:, None]
        xp = x_base + (rd * (H * W) + rh * W + kb * (BK * D * H * W))
        xv = tl.load(xp + x_offs, mask=mask, other=0.0)
        wp = w_base + (r * (3 * WSTEP) + kb * BK)
        w_a = tl.load(wp + w_offs)
        w_b = tl.load(wp + WSTEP + w_offs)
        w_c = tl.load(wp + 2 * WSTEP + w_offs)
        acc0 = tl.dot(w_a, xv, acc0)
        acc1 = tl.dot(w_b, xv, acc1)
        acc2 = tl.dot(w_c, xv, acc2)
        # Gap zeros leave while copies and products are under way.
        for z in tl.static_range(ZIN):
            zo = z_offs + ((it - lo * KB) * ZIN + z) * ZW
            tl.store(y_ptr + zo, z_val, mask=zo < z_end)

    # A row owns the aligned units from the one with its first word up to the next row's.
    rr = tl.arange(0, R)
    c = c0 + rr // TH
    h = h0 + rr % TH
    nc = n * C + c
    row_word = ((nc * V + (2 * qd + 1) * A + OW + 1) >> 1) + h * OW
    s = row_word & (AL - 1)
    row_a = (row_word >> LOG) * AL
    good = (c < C) & (h < H)

    # Columns in pairs, as the matrix layout keeps them: within a pair the taps add in place.
    HB: tl.constexpr = BW // 2
    e0, o0 = tl.split(tl.reshape(acc0, (R, HB, 2)))
    e1, o1 = tl.split(tl.reshape(acc1, (R, HB, 2)))
    e2, o2 = tl.split(tl.reshape(acc2, (R, HB, 2)))
    jj = tl.arange(0, HB)
    if W != BW:
        o2 = tl.where((2 * jj + 1 < W)[None, :], o2, 0.0)
    pair_e = e1 + o2
    pair_o = o1 + e0

    # out[2j] = pair_e[j] + o0[j - 1], out[2j + 1] = pair_o[j] + e2[j + 1], rows turned by s.
    turn_e = s >> 1
    turn_o = (s + 1) >> 1
    ie = (jj[None, :] - turn_e[:, None]) & (HB - 1)
    io = (jj[None, :] - turn_o[:, None]) & (HB - 1)
    even = tl.gather(pair_e, ie, 1)
    even += tl.where(ie > 0, tl.gather(o0, tl.maximum(ie - 1, 0), 1), 0.0)
    odd = tl.gather(pair_o, io, 1)
    odd += tl.where(2 * io + 2 < W, tl.gather(e2, tl.minimum(io + 1, HB - 1), 1), 0.0)
    swap = ((s & 1) == 1)[:, None]
    first = tl.where(swap, odd, even).to(tl.bfloat16).to(tl.uint16, bitcast=True)
    second = tl.where(swap, even, odd).to(tl.bfloat16).to(tl.uint16, bitcast=True)
    half = tl.reshape(tl.join(first, second), (R, BW))
    col = tl.arange(0, BW)

    # Words row_a + [0, BW) and row_a + [BW, 2 * BW): 16-byte stores, zeros around the values.
    shift = tl.where(nc % 2 == 0, 16, 0).to(tl.uint32)
    word = (half.to(tl.uint32) << shift[:, None]).to(tl.int32, bitcast=True)
    v = col[None, :] - s[:, None]
    lower = tl.where((v >= 0) & (v < W), word, 0)
    upper = tl.where((v < 0) & (v + BW < W), word, 0)
    if W == BW:
        low_mask = good[:, None]
        high_mask = good[:, None]
    else:
        run = ((s + OW) >> LOG) * AL
        low_mask = good[:, None] & (col[None, :] < run[:, None])
        high_mask = good[:, None] & ((col + BW)[None, :] < run[:, None])
    offs = row_a[:, None] + col[None, :]
    tl.store(y_ptr + offs, lower, mask=low_mask)
    tl.store(y_ptr + (offs + BW), upper, mask=high_mask)
    if W == BW:
        # One row in AL owns a further unit of zeros.
        t_offs = (row_a + 2 * BW)[:, None] + tl.arange(0, AL)[None, :]
        t_mask = (good & (s == AL - 1))[:, None]
        tl.store(y_ptr + t_offs, tl.zeros((R, AL), dtype=tl.int32), mask=t_mask)

    # The gap steps that are left (all with ZIN 0) come last: nothing waits behind them.
    for step in range(ZIN * (hi - lo) * KB, steps):
        zo = z_offs + step * ZW
        tl.store(y_ptr + zo, z_val, mask=zo < z_end)

    # The words before the first value of all.
    if pid + cb == 0:
        for q in range(0, HEAD, 1024):
            qo = q + tl.arange(0, 1024)
            tl.store(y_ptr + qo, tl.zeros((1024,), dtype=tl.int32), mask=qo < HEAD)


def kernel_function(x, weight, stride, padding, dilation, groups=1, output_padding=(0, 0, 0)):
    x = x.contiguous()
    weight = weight.contiguous()
    N, C_in, D, H, W = x.shape
    C = weight.shape[1]
    out_shape = (N, C, 2 * D + 1, 2 * H + 1, 2 * W + 1)
    total = N * C * out_shape[2] * out_shape[3] * out_shape[4]
    limit = 2**31 - 2**16

    fast = (
        tuple(weight.shape[2:]) == (3, 3, 3)
        and tuple(stride) == (2, 2, 2)
        and tuple(padding) == (1, 1, 1)
        and tuple(dilation) == (2, 2, 2)
        and groups == 1
        and not any(output_padding)
        and x.dtype == torch.bfloat16
        and weight.dtype == torch.bfloat16
        and 2 <= W <= 128
        and total < limit
        and x.numel() < limit
    )
    if not fast:
        return _fallback(x, weight, stride, padding, dilation)

    BK = 32 if C_in > 16 else 16
    CP = triton.cdiv(C_in, BK) * BK
    COP = triton.cdiv(C, 64) * 64
    BW = max(16, triton.next_power_of_2(W))
    # Unit of ownership in 4-byte words: the W + 1 zeros before a row must cover its rounding.
    LOG = 3 if W >= 6 else 2
    AL = 1 << LOG
    TOTP = triton.cdiv((total + 1) // 2, AL) * AL

    wt = torch.empty((27 * COP * CP,), dtype=x.dtype, device=x.device)
    y = torch.empty((TOTP,), dtype=torch.int32, device=x.device)

    pack_weight_kernel[(27, COP // 64, CP // BK)](
        weight, wt, C_IN=C_in, C=C, CP=CP, BK=BK, COP=COP, num_warps=8,
    )

    def grid(meta):
        return (triton.cdiv(H, meta["BP"] // BW) * D * N, COP // 64)

    conv_kernel[grid](
        x, wt, y,
        N=N, C_IN=C_in, C=C, D=D, H=H, W=W, CP=CP, BK=BK, COP=COP, BW=BW,
        AL=AL, LOG=LOG, TOTP=TOTP,
    )
    return y.view(torch.bfloat16)[:total].view(out_shape)
