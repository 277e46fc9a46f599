"""Forms that are not worth their compilation where a kernel has others."""

from beamsearch.records.plan import Plan
from kernel_profiling.compiler.occupancy import registers_of_largest_block

MOST_REGISTERS = 2 * 255
"""Registers a thread that one block of numbers may take in a form that is one of several: twice
what a thread has. More of it would be moved to memory than stays, after minutes of compilation."""
MOST_IR_LINES = 4000
"""Lines of a kernel's Triton IR in a form that is one of several. Triton's coalescing takes time by
the square of them where loads are unrolled: 1,447 lines took 1.0 s of it, 2,753 lines 3.3 s, 5,369
lines 13 s, 10,600 lines 54 s (Triton 3.9, one core), and the GPU waits."""


def reason_hopeless(plan: Plan) -> str | None:
    """Why a form cannot be the fastest of several, seen before it is compiled; none otherwise."""
    for kernel in plan.kernels:
        threads = 32 * kernel.options.get("num_warps", 4) * kernel.options.get("num_ctas", 1)
        registers = registers_of_largest_block(kernel.ttir, threads)
        if registers > MOST_REGISTERS:
            return (
                f"not compiled: one block of {kernel.name} would take {registers} registers a "
                "thread, which has 255"
            )
        lines = kernel.ttir.count("\n")
        if lines > MOST_IR_LINES:
            return (
                f"not compiled: {kernel.name} is unrolled to {lines:,} lines of Triton's IR, which "
                "take too long to compile"
            )
    return None
