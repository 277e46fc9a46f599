"""The ground of every record: profiling's own, strict and immutable."""

from typing import TypeVar

from pydantic import BaseModel

from kernel_profiling.profile import Record

R = TypeVar("R", bound=BaseModel)
"""Some kind of record."""

__all__ = ["R", "Record"]
