"""Real Triton kernels compiled from their Python, as a capture finds them, and plans of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.language.extra import libdevice

from beamsearch.records.plan import (
    Buffer,
    Descriptor,
    Kernel,
    Launch,
    Number,
    Plan,
    Pointer,
)

N = 1 << 20
ALIGNED = [["tt.divisibility", 16]]


@triton.jit
def scale_kernel(x_ptr, y_ptr, n, factor, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(
        x_ptr + index,
        mask=index < n,
    )
    tl.store(y_ptr + index, x * factor, mask=index < n)


@triton.jit
def dot_kernel(a_ptr, b_ptr, c_ptr, K, B: tl.constexpr, BK: tl.constexpr):
    rows, columns, k = tl.arange(0, B), tl.arange(0, B), tl.arange(0, BK)
    acc = tl.zeros((B, B), dtype=tl.float32)
    for start in range(0, K, BK):
        a = tl.load(a_ptr + rows[:, None] * K + (start + k)[None, :])
        b = tl.load(b_ptr + (start + k)[:, None] * B + columns[None, :])
        acc = tl.dot(a, b, acc)
    tl.store(c_ptr + rows[:, None] * B + columns[None, :], acc)


@triton.jit
def host_descriptor_kernel(x, y, BLOCK: tl.constexpr):
    row = tl.program_id(0) * BLOCK
    y.store([row, 0], x.load([row, 0]))


@triton.jit
def device_descriptor_kernel(x_ptr, y_ptr, M, N: tl.constexpr, BLOCK: tl.constexpr):
    x = tl.make_tensor_descriptor(x_ptr, [M, N], [N, 1], [BLOCK, N])
    y = tl.make_tensor_descriptor(y_ptr, [M, N], [N, 1], [BLOCK, N])
    row = tl.program_id(0) * BLOCK
    y.store([row, 0], x.load([row, 0]))


@triton.jit
def assembly_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    y = tl.inline_asm_elementwise(
        "add.rn.f32 $0, $1, 0f3F800000;", "=f,f", [x], dtype=tl.float32, is_pure=True, pack=1
    )
    tl.store(y_ptr + index, y)


@triton.jit
def library_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index)
    tl.store(y_ptr + index, tl.math.erf(x) + libdevice.tanh(x))


@triton.jit
def divide_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + index // n)
    tl.store(y_ptr + index, x)


@triton.jit
def specialised_kernel(a, b, c, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for start in tl.range(0, K, BK, warp_specialize=True):
        acc = tl.dot(a.load([0, start]), b.load([0, start]).T, acc)
    c.store([0, 0], acc.to(tl.bfloat16))


@dataclass
class Original:
    """A kernel as its Python compiles."""

    compiled: Any
    kernel: Kernel


def original(
    function: Any, signature: dict[str, str], constants: dict[str, Any], **options: Any
) -> Original:
    """Compile for an H200; pointers and integers are told to be multiples of 16.

    `signature` and then `constants` are in the order of the function's parameters.
    """
    names = function.arg_names
    kinds = [*signature.values(), *("constexpr" for _ in constants)]
    ordered = dict(zip(names, kinds, strict=True))
    attributes = {(n,): ALIGNED for n, kind in enumerate(signature.values()) if kind[0] in "*i"}
    source = ASTSource(function, ordered, constants, attributes)
    options = {"enable_fp_fusion": True, **options}
    compiled = triton.compile(source, target=GPUTarget("cuda", 90, 32), options=options)
    return Original(
        compiled,
        Kernel(
            name=function.__name__,
            ttir=compiled.asm["ttir"],
            options=options,
            signature=list(signature.values()),
            source_file=__file__,
        ),
    )


FLOATS = {"x_ptr": "*fp32", "y_ptr": "*fp32"}
DESCRIPTOR = "tensordesc<bf16[64, 64]>"


def scale(block: int = 1024, function: Any = scale_kernel, **options: Any) -> Original:
    """Elementwise."""
    signature = {**FLOATS, "n": "i32", "factor": "fp32"}
    return original(function, signature, {"BLOCK": block}, **options)


def dot(**options: Any) -> Original:
    """A pipelined product."""
    signature = {"a_ptr": "*bf16", "b_ptr": "*bf16", "c_ptr": "*fp32", "K": "i32"}
    chosen = {"num_warps": 8, "num_stages": 3, **options}
    return original(dot_kernel, signature, {"B": 128, "BK": 64}, **chosen)


def host_descriptors() -> Original:
    """Descriptors that the host makes."""
    signature = {"x": DESCRIPTOR, "y": DESCRIPTOR}
    return original(host_descriptor_kernel, signature, {"BLOCK": 64})


def device_descriptors() -> Original:
    """Descriptors that the kernel makes, in global scratch."""
    signature = {"x_ptr": "*bf16", "y_ptr": "*bf16", "M": "i32"}
    return original(device_descriptor_kernel, signature, {"N": 64, "BLOCK": 64})


def specialised() -> Original:
    """A product whose loads have warps of their own: four compute, eight more run."""
    signature = {**dict.fromkeys("abc", DESCRIPTOR), "K": "i32"}
    sizes = {"BM": 64, "BN": 64, "BK": 64}
    return original(specialised_kernel, signature, sizes, num_warps=4)


def plan_of(
    found: Original, grid: tuple[int, int, int] = (4, 1, 1), config: str | None = None
) -> Plan:
    """A plan with one launch: every address in a buffer of its own, the first two given."""
    arguments: list[Pointer | Number | Descriptor] = []
    buffers: list[Buffer] = []
    for kind in found.kernel.signature:
        place = Pointer(buffer=len(buffers), offset=0)
        if kind.startswith("*"):
            arguments.append(place)
        elif kind.startswith("tensordesc"):
            made = {"shape": (N // 64, 64), "strides": (64, 1), "block_shape": (64, 64)}
            arguments.append(Descriptor(base=place, dtype="bfloat16", type=kind, **made))
        else:
            arguments.append(Number(type=kind, value=N if kind == "i32" else 2.0))
            continue
        given = {"role": "given", "given": len(buffers)} if len(buffers) < 2 else {"role": "made"}
        buffers.append(Buffer(bytes=4 * N, **given))
    return Plan(
        capability=90,
        triton=triton.__version__,
        kernels=[found.kernel],
        buffers=buffers,
        steps=[Launch(kernel=0, grid=grid, arguments=arguments, config=config)],
        results=[],
    )
