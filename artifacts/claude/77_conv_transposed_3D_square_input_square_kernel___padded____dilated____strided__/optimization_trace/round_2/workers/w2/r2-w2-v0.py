"""Transposed 3-D convolution (kernel 3, stride 2, padding 1, dilation 2): partial sums per
width tap on the matrix units, operands as tensor-descriptor boxes, 16 warps of 64 registers,
the zeros between the planes written inside the tap loop."""

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor


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
def gap_bounds(
    g, D: tl.constexpr, H: tl.constexpr, V: tl.constexpr, A: tl.constexpr, OW: tl.constexpr,
    TOTAL: tl.constexpr,
):
    # Words [start, stop) of the g-th run of zeros between the blocks of rows that hold values.
    nc = g // (D + 1)
    j = g % (D + 1)
    head = (nc * V + OW + 1) >> 1
    word0 = (nc * V + A + OW + 1) >> 1
    prev = word0 + (j - 1) * A
    start = tl.where(j == 0, tl.where(nc == 0, 0, head), prev + H * OW)
    stop = tl.where(j == 0, word0, tl.minimum(prev + A, TOTAL))
    return start, stop


@triton.jit
def zero_short(
    y_ptr, start, stop,
    NV: tl.constexpr, ZB: tl.constexpr, EDGE: tl.constexpr,
):
    # Straight-line zeros for a gap of bounded length: NV predicated 16-byte stores a lane, then
    # one store of single words for the head and for whatever lies behind the NV blocks.
    sq = (start + 3) >> 2
    eq = stop >> 2
    lane = tl.arange(0, ZB)
    for v in tl.static_range(NV):
        offs = sq * 4 + v * ZB + lane
        tl.store(y_ptr + offs, tl.zeros((ZB,), dtype=tl.int32), mask=offs < eq * 4)
    rest = tl.minimum(eq * 4, sq * 4 + NV * ZB)
    edge = tl.arange(0, EDGE)
    e_offs = tl.where(edge < 4, start + edge, rest + edge - 4)
    low = (edge < 4) & (e_offs < tl.minimum(sq * 4, stop))
    high = (edge >= 4) & (e_offs >= sq * 4) & (e_offs < stop)
    tl.store(y_ptr + e_offs, tl.zeros((EDGE,), dtype=tl.int32), mask=low | high)


@triton.jit
def zero_long(y_ptr, start, stop, ZB: tl.constexpr):
    # Zeros for a gap of any length, outside the tap loop.
    sq = (start + 3) >> 2
    eq = stop >> 2
    lane = tl.arange(0, ZB)
    for q in range(sq, eq, ZB // 4):
        offs = q * 4 + lane
        tl.store(y_ptr + offs, tl.zeros((ZB,), dtype=tl.int32), mask=offs < eq * 4)
    edge = tl.arange(0, 8)
    e_offs = tl.where(edge < 4, start + edge, eq * 4 + edge - 4)
    low = (edge < 4) & (e_offs < tl.minimum(sq * 4, stop))
    high = (edge >= 4) & (e_offs >= sq * 4) & (e_offs < stop)
    tl.store(y_ptr + e_offs, tl.zeros((8,), dtype=tl.int32), mask=low | high)


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


def _fit_boxes(nargs):
    if isinstance(nargs["x_desc"], TensorDescriptor):
        nargs["x_desc"].block_shape = [1, 1, nargs["BK"], nargs["BP"]]


@triton.autotune(
    configs=[
        triton.Config({"BP": 128, "ZB": 2048}, num_warps=16, num_stages=4, maxnreg=64,
                      pre_hook=_fit_boxes),
        triton.Config({"BP": 128, "ZB": 2048}, num_warps=16, num_stages=3, maxnreg=64,
                      pre_hook=_fit_boxes),
        triton.Config({"BP": 128, "ZB": 2048}, num_warps=16, num_stages=4, maxnreg=80,
                      pre_hook=_fit_boxes),
        triton.Config({"BP": 128, "ZB": 1024}, num_warps=8, num_stages=4, maxnreg=128,
                      pre_hook=_fit_boxes),
    ],
    key=["N", "C_IN", "C", "D", "H", "W", "USE_TMA"],
)
@triton.jit
def conv_kernel(
    x_ptr, wt_ptr, y_ptr, x_desc, w_desc,
    N: tl.constexpr, C_IN: tl.constexpr, C: tl.constexpr,
    D: tl.constexpr, H: tl.constexpr, W: tl.constexpr,
    CP: tl.constexpr, BK: tl.constexpr, COP: tl.constexpr,
    BW: tl.constexpr, USE_TMA: tl.constexpr,
    BP: tl.constexpr, ZB: tl.constexpr,
):
    BM: tl.constexpr = 64
    TH: tl.constexpr = BP // BW
    R: tl.constexpr = BM * TH
    TILES: tl.constexpr = (H + TH - 1) // TH
    PROGS: tl.constexpr = TILES * D * N * (COP // BM)
    OW: tl.constexpr = 2 * W + 1
    A: tl.constexpr = (2 * H + 1) * OW
    V: tl.constexpr = (2 * D + 1) * A
    TOTAL: tl.constexpr = (N * C * V + 1) // 2
    GAPS: tl.constexpr = N * C * (D + 1)
    KB: tl.constexpr = CP // BK
    WSTEP: tl.constexpr = COP * CP

    # The longest gap, in blocks of ZB words and a short rest of single words.
    GAP_A: tl.constexpr = (H + 1) * OW
    GAP_B: tl.constexpr = A // 2 + OW
    MAXGAP: tl.constexpr = (GAP_A if GAP_A > GAP_B else GAP_B) + 8
    FULL: tl.constexpr = MAXGAP // ZB
    REM: tl.constexpr = MAXGAP % ZB
    SMALL: tl.constexpr = REM + 8 <= ZB // 4
    NV: tl.constexpr = FULL if SMALL else FULL + 1
    WORDS: tl.constexpr = ZB // 8 if REM + 8 <= ZB // 8 else ZB // 4
    EDGE: tl.constexpr = WORDS if SMALL else 8
    INLOOP: tl.constexpr = NV <= 4

    pid = tl.program_id(0)
    cb = tl.program_id(1)
    tile = pid % TILES
    t = pid // TILES
    qd = t % D
    n = t // D
    h0 = tile * TH
    c0 = cb * BM

    # This program's gaps: first .. last - 1.
    BASE: tl.constexpr = GAPS // PROGS
    EXTRA: tl.constexpr = GAPS % PROGS
    pg = cb * (TILES * D * N) + pid
    first = pg * BASE + tl.minimum(pg, EXTRA)
    last = first + BASE + tl.where(pg < EXTRA, 1, 0)

    if not USE_TMA:
        # A tile spans whole rows: x is read where it lies, without a width halo.
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
        if USE_TMA:
            # Rows above and below the plane and missing channels arrive as zeros.
            box = x_desc.load([qd - 1 + rd, n, kb * BK, (h0 - 1 + rh) * W])
            xv = tl.reshape(box, (BK, BP))
            w_row = r * (3 * COP) + c0
            w_a = w_desc.load([w_row, kb * BK])
            w_b = w_desc.load([w_row + COP, kb * BK])
            w_c = w_desc.load([w_row + 2 * COP, kb * BK])
        else:
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

        # One gap of zeros a trip, behind the products just issued.
        if INLOOP:
            g = first + (it - lo * KB)
            z0, z1 = gap_bounds(tl.minimum(g, GAPS - 1), D, H, V, A, OW, TOTAL)
            z1 = tl.where(g < last, z1, z0)
            zero_short(y_ptr, z0, z1, NV, ZB, EDGE)

    # out[w] = acc0[w - 1] + acc1[w] + acc2[w + 1], lanes along w.
    col = tl.arange(0, BW)
    zero_idx = tl.zeros((R, BW), dtype=tl.int32)
    out = tl.reshape(acc1, (R, BW))
    idx_l = zero_idx + tl.maximum(col - 1, 0)[None, :]
    left = tl.gather(tl.reshape(acc0, (R, BW)), idx_l, 1)
    out += tl.where((col > 0)[None, :], left, 0.0)
    idx_r = zero_idx + tl.minimum(col + 1, BW - 1)[None, :]
    right = tl.gather(tl.reshape(acc2, (R, BW)), idx_r, 1)
    out += tl.where((col + 1 < W)[None, :], right, 0.0)
    half = out.to(tl.bfloat16).to(tl.uint16, bitcast=True)

    rr = tl.arange(0, R)
    c = c0 + rr // TH
    h = h0 + rr % TH
    nc = n * C + c
    row_word = ((nc * V + (2 * qd + 1) * A + OW + 1) >> 1) + h * OW
    good = (c < C) & (h < H)
    full = good[:, None] & (col < W)[None, :]
    shift = tl.where(nc % 2 == 0, 16, 0).to(tl.uint32)
    bits = (half.to(tl.uint32) << shift[:, None]).to(tl.int32, bitcast=True)
    ptr = y_ptr + (row_word[:, None] + col[None, :])
    tl.store(ptr, bits, mask=full)
    tl.store(ptr + (W + 1), tl.zeros((R, BW), dtype=tl.int32), mask=full)
    tl.store(y_ptr + (row_word + W), tl.zeros((R,), dtype=tl.int32), mask=good)

    # Gaps that found no trip (end planes, other shapes).
    if INLOOP:
        rest = first + (hi - lo) * KB
    else:
        rest = first
    for gg in range(rest, last):
        y0, y1 = gap_bounds(gg, D, H, V, A, OW, TOTAL)
        zero_long(y_ptr, y0, y1, ZB)


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
        and W <= 128
        and total < limit
        and x.numel() < limit
    )
    if not fast:
        return _fallback(x, weight, stride, padding, dilation)

    BK = 32 if C_in > 16 else 16
    CP = triton.cdiv(C_in, BK) * BK
    COP = triton.cdiv(C, 64) * 64
    BW = max(16, triton.next_power_of_2(W))

    wt = torch.empty((27 * COP, CP), dtype=x.dtype, device=x.device)
    y = torch.empty(((total + 1) // 2,), dtype=torch.int32, device=x.device)

    pack_weight_kernel[(27, COP // 64, CP // BK)](
        weight, wt, C_IN=C_in, C=C, CP=CP, BK=BK, COP=COP, num_warps=8,
    )

    def grid(meta):
        return (triton.cdiv(H, meta["BP"] // BW) * D * N, COP // 64)

    use_tma = (
        W == BW
        and (H * W) % 8 == 0
        and x.data_ptr() % 16 == 0
        and wt.data_ptr() % 16 == 0
    )
    x_desc, w_desc = x, wt
    if use_tma:
        plane = H * W
        x_desc = TensorDescriptor(
            x, [D, N, C_in, plane], [plane, C_in * D * plane, D * plane, 1], [1, 1, BK, 128]
        )
        w_desc = TensorDescriptor(wt, [27 * COP, CP], [CP, 1], [64, BK])

    conv_kernel[grid](
        x, wt, y, x_desc, w_desc,
        N=N, C_IN=C_in, C=C, D=D, H=H, W=W, CP=CP, BK=BK, COP=COP, BW=BW, USE_TMA=use_tma,
    )
    return y.view(torch.bfloat16)[:total].view(out_shape)
