"""The ground of every record: profiling's own, strict and immutable."""

from kernel_profiling.profile import Record

__all__ = ["Record"]
