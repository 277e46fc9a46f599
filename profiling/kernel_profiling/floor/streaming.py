"""The Triton kernel that shows how fast this GPU moves bytes at a given mix of reads and writes."""

# Triton source: what its compiler types, mypy cannot.
# mypy: ignore-errors

from __future__ import annotations

import triton
import triton.language as tl

PARTS = 8
"""A group is this many chunks; the mix of reads and writes is in eighths."""

MAGIC = 0x5BD1E995
"""Stored only where the exclusive-or of all reads is this, which keeps the reads alive."""


@triton.jit
def stream_kernel(
    x_ptr,
    y_ptr,
    groups,
    READS: tl.constexpr,
    WRITES: tl.constexpr,
    CHUNK: tl.constexpr,
    EVICT: tl.constexpr,
    MAGIC: tl.constexpr,
):
    """Of every READS + WRITES chunks of int32, read the first and write the others.

    A grid smaller than `groups` strides over them.
    """
    lane = tl.arange(0, CHUNK)
    for group in range(tl.program_id(0), groups, tl.num_programs(0)):
        at = group.to(tl.int64)
        mix = tl.zeros((CHUNK,), dtype=tl.int32)
        for part in tl.static_range(READS):
            offset = (at * READS + part) * CHUNK + lane
            mix ^= tl.load(x_ptr + offset, eviction_policy=EVICT)
        for part in tl.static_range(WRITES):
            offset = (at * WRITES + part) * CHUNK + lane
            tl.store(y_ptr + offset, mix + part, eviction_policy=EVICT)
        if WRITES == 0:
            tl.store(y_ptr + lane, mix, mask=mix == MAGIC)


# (elements a chunk, warps, eviction hint, programs an SM; 0: one program a group)
VARIANTS: tuple[tuple[int, int, str, int], ...] = (
    (1024, 4, "", 0),
    (1024, 4, "evict_first", 0),
    (2048, 8, "evict_first", 0),
    (2048, 4, "", 0),
    (1024, 4, "evict_first", 8),
)
"""Different enough that one of them is near the best on each GPU; few, since each compiles."""
