"""Transposed 3D convolution (k3 s2 p1 d2): dense 3x3x3 products for the odd outputs, zeros as words.

One unshifted x tile feeds the three taps along w; the three accumulators are shifted at the end.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def conv_transpose3d_kernel(x_ptr, weight_ptr, y_ptr, C_in, C_out, D, H, W, out_d, out_h, out_w, stride, padding, dilation, KERNEL_SIZE: tl.constexpr, BLOCK: tl.constexpr):
    batch = tl.program_id(1) // C_out
    c_out = tl.program_id(1) % C_out
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = index < out_d * out_h * out_w
    ow = index % out_w
    oh = index // out_w % out_h
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
                position = (d // stride * H + h // stride) * W + w // stride
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
def _zero_run(yw, start, end, MAX_LEN: tl.constexpr):
    s8 = tl.multiple_of((start + 7) // 8 * 8, 8)
    e8 = tl.multiple_of(end // 8 * 8, 8)
    lane = tl.arange(0, 1024)
    zero = tl.zeros((1024,), dtype=tl.int32)
    for t in range(0, MAX_LEN, 1024):
        body = s8 + t + lane
        tl.store(yw + body, zero, mask=body < e8, eviction_policy='evict_first')
    edge = tl.arange(0, 16)
    idx = tl.where(edge < 8, start + edge, e8 + edge - 8)
    last = tl.where(edge < 8, tl.minimum(s8, end), end)
    tl.store(yw + idx, tl.zeros((16,), dtype=tl.int32), mask=(idx >= start) & (idx < last))


@triton.jit
def _channel_head(y_ptr, q, OD: tl.constexpr, S: tl.constexpr, TOTAL: tl.constexpr):
    yw = tl.multiple_of(y_ptr.to(tl.pointer_type(tl.int32)), 16)
    first = q * (OD * S)
    _zero_run(yw, first // 2, (first + S) // 2, (S + 1) // 2)
    if TOTAL % 2 == 1:
        if q == 0:
            tl.store(y_ptr + (TOTAL - 1), 0.0)


@triton.jit
def _pack_weight(weight_ptr, wp_ptr, pid, C_in: tl.constexpr, C_out: tl.constexpr, CIP: tl.constexpr, COP: tl.constexpr):
    e = pid * 1024 + tl.arange(0, 1024)
    ci = e % CIP
    co = e // CIP % COP
    tap = e // (CIP * COP)
    live = (tap < 27) & (ci < C_in) & (co < C_out)
    v = tl.load(weight_ptr + (ci * C_out + co) * 27 + tap, mask=live, other=0.0)
    tl.store(wp_ptr + e, v, mask=tap < 27)


@triton.jit
def _zero_after_plane(yw, q0, co0, hb, plane, C_out: tl.constexpr, OD: tl.constexpr, S: tl.constexpr, LIVE: tl.constexpr, COT: tl.constexpr, CPB: tl.constexpr):
    for c in range(CPB):
        lc = hb * CPB + c
        valid = (lc < COT) & (co0 + lc < C_out)
        b = (q0 + lc) * (OD * S) + plane >> 1
        start = b + LIVE
        end = tl.where(valid, b + S, start)
        _zero_run(yw, start, end, S - LIVE)


@triton.jit
def prepare_kernel(weight_ptr, wp_ptr, y_ptr, C_in: tl.constexpr, C_out: tl.constexpr, CIP: tl.constexpr, COP: tl.constexpr, OD: tl.constexpr, S: tl.constexpr, TOTAL: tl.constexpr, PACK: tl.constexpr):
    pid = tl.program_id(0)
    if pid < PACK:
        _pack_weight(weight_ptr, wp_ptr, pid, C_in, C_out, CIP, COP)
    else:
        _channel_head(y_ptr, pid - PACK, OD, S, TOTAL)


@triton.jit
def odd_planes_kernel(x_ptr, wp_ptr, y_ptr, C_in: tl.constexpr, C_out: tl.constexpr, D: tl.constexpr, H: tl.constexpr, W: tl.constexpr, CIP: tl.constexpr, COP: tl.constexpr, COT: tl.constexpr, BH: tl.constexpr, BW: tl.constexpr, HB: tl.constexpr, STAGES: tl.constexpr):
    OW: tl.constexpr = 2 * W + 1
    OD: tl.constexpr = 2 * D + 1
    S: tl.constexpr = (2 * H + 1) * (2 * W + 1)
    R: tl.constexpr = BH * BW
    CPB: tl.constexpr = (COT + HB - 1) // HB
    pid = tl.program_id(0)
    n = tl.program_id(1)
    co0 = tl.program_id(2) * COT
    md = pid // HB
    hb = pid % HB
    h0 = hb * BH
    q0 = n * C_out + co0
    plane = (2 * md + 1) * S
    yw = tl.multiple_of(y_ptr.to(tl.pointer_type(tl.int32)), 16)
    _zero_after_plane(yw, q0, co0, hb, plane, C_out, OD, S, OW * H, COT, CPB)
    r = tl.arange(0, R)
    rh = r // BW
    rw = r % BW
    ci = tl.arange(0, CIP)
    cow = tl.arange(0, COT)
    if W == BW:
        pixel = h0 * W + r
    else:
        pixel = (h0 + rh) * W + rw
    x_off = ci[:, None] * (D * H * W) + pixel[None, :]
    x_base = x_ptr + n * (C_in * D * H * W)
    w_base = wp_ptr + co0 * CIP
    w_off = cow[:, None] * CIP + ci[None, :]
    a0 = tl.zeros((COT, R), dtype=tl.float32)
    a1 = tl.zeros((COT, R), dtype=tl.float32)
    a2 = tl.zeros((COT, R), dtype=tl.float32)
    for t in tl.range(0, 9, num_stages=STAGES):
        kd = t // 3
        kh = t - kd * 3
        d = md + 1 - kd
        h = h0 + rh + (1 - kh)
        ok = (h >= 0) & (h < H) & (d >= 0) & (d < D)
        if W != BW:
            ok = ok & (rw < W)
        x_ok = ok[None, :]
        if C_in != CIP:
            x_ok = x_ok & (ci < C_in)[:, None]
        x_shift = d * (H * W) + (1 - kh) * W
        xt = tl.load(x_base + (x_off + x_shift), mask=x_ok, other=0.0)
        w_ptrs = w_base + (w_off + t * (3 * COP * CIP))
        w0 = tl.load(w_ptrs, eviction_policy='evict_last')
        w1 = tl.load(w_ptrs + COP * CIP, eviction_policy='evict_last')
        w2 = tl.load(w_ptrs + 2 * COP * CIP, eviction_policy='evict_last')
        a0 = tl.dot(w0, xt, a0)
        a1 = tl.dot(w1, xt, a1)
        a2 = tl.dot(w2, xt, a2)
    col = tl.arange(0, BW)
    following = tl.broadcast_to(tl.minimum(col + 1, BW - 1)[None, None, :], (COT, BH, BW))
    previous = tl.broadcast_to(tl.maximum(col - 1, 0)[None, None, :], (COT, BH, BW))
    s0 = tl.gather(tl.reshape(a0, (COT, BH, BW)), following, 2)
    s2 = tl.gather(tl.reshape(a2, (COT, BH, BW)), previous, 2)
    v = tl.reshape(a1, (COT, BH, BW))
    v = v + tl.where((col + 1 < W)[None, None, :], s0, 0.0)
    v = v + tl.where((col > 0)[None, None, :], s2, 0.0)
    co = tl.arange(0, COT)
    row = tl.arange(0, BH)
    first = (q0 + co) * (OD * S) + plane
    shift = (first & 1) * 16
    word_row = (first >> 1)[:, None] + ((h0 + row) * OW)[None, :]
    row_ok = (co0 + co < C_out)[:, None] & (h0 + row < H)[None, :]
    bits = v.to(tl.bfloat16).to(tl.int16, bitcast=True).to(tl.int32) & 65535
    word = bits << shift[:, None, None]
    at = word_row[:, :, None] + col[None, None, :]
    tl.store(yw + (at + (W + 1)), word, mask=row_ok[:, :, None] & (col < W)[None, None, :])
    tl.store(yw + at, tl.zeros((COT, BH, BW), dtype=tl.int32), mask=row_ok[:, :, None] & (col < W + 1)[None, None, :])
    if W == BW:
        tl.store(yw + (word_row + W), tl.zeros((COT, BH), dtype=tl.int32), mask=row_ok)


def _general(x, weight, stride, padding, dilation):
    N, C_in, D, H, W = x.shape
    C_out, kernel_size = (weight.shape[1], weight.shape[2])
    stride, padding, dilation = (stride[0], padding[0], dilation[0])
    out_d, out_h, out_w = ((size - 1) * stride - 2 * padding + dilation * (kernel_size - 1) + 1 for size in (D, H, W))
    y = torch.empty((N, C_out, out_d, out_h, out_w), dtype=x.dtype, device=x.device)
    grid = (triton.cdiv(out_d * out_h * out_w, 256), N * C_out)
    conv_transpose3d_kernel[grid](x, weight, y, C_in, C_out, D, H, W, out_d, out_h, out_w, stride, padding, dilation, KERNEL_SIZE=kernel_size, BLOCK=256)
    return y


def _is_fast(x, weight, stride, padding, dilation):
    if x.dtype != torch.bfloat16 or weight.dtype != torch.bfloat16:
        return False
    if tuple(stride) != (2, 2, 2) or tuple(padding) != (1, 1, 1) or tuple(dilation) != (2, 2, 2):
        return False
    if tuple(weight.shape[2:]) != (3, 3, 3) or weight.shape[0] != x.shape[1]:
        return False
    N, C_in, D, H, W = x.shape
    total = N * weight.shape[1] * (2 * D + 1) * (2 * H + 1) * (2 * W + 1)
    return W <= 128 and C_in <= 64 and (max(total, 4 * x.numel()) < 2 ** 31 - 2 ** 22)


def kernel_function(x, weight, stride, padding, dilation):
    x = x.contiguous()
    weight = weight.contiguous()
    if not _is_fast(x, weight, stride, padding, dilation):
        return _general(x, weight, stride, padding, dilation)
    N, C_in, D, H, W = x.shape
    C_out = weight.shape[1]
    OD, OH, OW = (2 * D + 1, 2 * H + 1, 2 * W + 1)
    y = torch.empty((N, C_out, OD, OH, OW), dtype=x.dtype, device=x.device)
    if y.data_ptr() % 16 != 0:
        return _general(x, weight, stride, padding, dilation)
    COT = 32
    COP = triton.cdiv(C_out, COT) * COT
    CIP = max(16, triton.next_power_of_2(C_in))
    BW = max(16, triton.next_power_of_2(W))
    BH = 128 // BW
    HB = triton.cdiv(H, BH)
    wp = torch.empty((27 * COP * CIP,), dtype=x.dtype, device=x.device)
    PACK = triton.cdiv(27 * COP * CIP, 1024)
    prepare_kernel[PACK + N * C_out,](weight, wp, y, C_in=C_in, C_out=C_out, CIP=CIP, COP=COP, OD=OD, S=OH * OW, TOTAL=y.numel(), PACK=PACK, num_warps=4)
    odd_planes_kernel[D * HB, N, COP // COT](x, wp, y, C_in=C_in, C_out=C_out, D=D, H=H, W=W, CIP=CIP, COP=COP, COT=COT, BH=BH, BW=BW, HB=HB, STAGES=3, num_warps=8, num_stages=3, maxnreg=128)
    return y
