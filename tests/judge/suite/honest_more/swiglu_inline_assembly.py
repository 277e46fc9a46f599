"""A sigmoid in PTX: two special function instructions an element, two elements at a time."""

import torch
import triton
import triton.language as tl

PROBLEM = "more_swiglu_float16"
NEEDS_GPU = "the interpreter runs no assembly"


@triton.jit
def sigmoid(x):
    return tl.inline_asm_elementwise(
        """
        {
            .reg .f32 a, b;
            mul.f32 a, $2, 0fBFB8AA3B;
            mul.f32 b, $3, 0fBFB8AA3B;
            ex2.approx.f32 a, a;
            ex2.approx.f32 b, b;
            add.f32 a, a, 0f3F800000;
            add.f32 b, b, 0f3F800000;
            rcp.approx.f32 $0, a;
            rcp.approx.f32 $1, b;
        }
        """,
        "=f,=f,f,f",
        [x],
        dtype=tl.float32,
        is_pure=True,
        pack=2,
    )


@triton.jit
def swiglu_kernel(x_ptr, y_ptr, hidden, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    mask = column < hidden
    x = x_ptr + row * 2 * hidden + column
    gate = tl.load(x, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(x + hidden, mask=mask, other=0.0).to(tl.float32)
    y = gate * sigmoid(gate) * up
    tl.store(y_ptr + row * hidden + column, y.to(y_ptr.dtype.element_ty), mask=mask)


def kernel_function(x):
    rows, hidden = x.shape[0], x.shape[1] // 2
    y = torch.empty((rows, hidden), dtype=x.dtype, device=x.device)
    swiglu_kernel[(rows, triton.cdiv(hidden, 1024))](x, y, hidden, BLOCK=1024)
    return y
