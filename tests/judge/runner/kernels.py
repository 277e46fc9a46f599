"""Small Triton kernels, compiled for the tests of the runner."""

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from beamsearch.records.plan import Binary, Kernel


@triton.jit
def scale(x_ptr, y_ptr, total, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = index < total
    x = tl.load(x_ptr + index, mask=mask)
    tl.store(y_ptr + index, x * factor + total % 1024, mask=mask)


@triton.jit
def count(counter_ptr):
    tl.atomic_add(counter_ptr, 1)


@triton.jit
def spin(flag_ptr):
    while tl.load(flag_ptr, volatile=True) >= 0:
        tl.atomic_add(flag_ptr, 0)


@triton.jit
def store_at(y_ptr, index):
    tl.store(y_ptr + index, 1.0)


@triton.jit
def copy_tiles(source, y_ptr, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    row, column = tl.program_id(0) * ROWS, tl.program_id(1) * WIDTH
    rows, cols = row + tl.arange(0, ROWS)[:, None], column + tl.arange(0, WIDTH)[None, :]
    tl.store(y_ptr + rows * columns + cols, source.load([row, column]))


@triton.jit
def copy_by_descriptor(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [rows, columns], [columns, 1], [ROWS, WIDTH])
    target = tl.make_tensor_descriptor(y_ptr, [rows, columns], [columns, 1], [ROWS, WIDTH])
    at = [tl.program_id(0) * ROWS, tl.program_id(1) * WIDTH]
    target.store(at, source.load(at))


@triton.jit
def product(a_ptr, b_ptr, c_ptr, depth, N: tl.constexpr, K: tl.constexpr):
    """C = A @ B of (N, depth) and (depth, N), in one block."""
    n, k = tl.arange(0, N), tl.arange(0, K)
    total = tl.zeros((N, N), tl.float32)
    for start in range(0, depth, K):
        a = tl.load(a_ptr + n[:, None] * depth + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * N + n[None, :])
        total += tl.dot(a, b)
    tl.store(c_ptr + n[:, None] * N + n[None, :], total)


DIVISIBLE = [["tt.divisibility", 16]]


def compiled(function, signature, constants, capability=90, divisible=(), **options):
    """A kernel and its machine code. `divisible`: parameters that 16 divides, by their place."""
    attributes = {(place,): DIVISIBLE for place in divisible}
    types = signature | dict.fromkeys(constants, "constexpr")
    source = ASTSource(function, signature=types, constexprs=constants, attrs=attributes)
    made = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
    told = made.metadata
    kernel = Kernel(
        name=told.name, ttir=made.asm["ttir"], options={}, signature=list(signature.values())
    )
    binary = Binary(
        name=told.name,
        cubin=b"",
        threads=32 * told.num_warps,
        shared_bytes=told.shared,
        cluster=(told.num_ctas, 1, 1),
        cooperative=told.launch_cooperative_grid,
        dependent=told.launch_pdl,
        scratch_bytes=told.global_scratch_size,
        scratch_align=told.global_scratch_align,
        descriptors=told.tensordesc_meta,
    )
    # Set past the decoding, as the bytes are no base64.
    return kernel, binary.model_copy(update={"cubin": made.asm["cubin"]})
