"""A kernel as it is given: its source, or the file that holds it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.errors import KernelError, UsageError

if TYPE_CHECKING:
    from beamsearch.problem.problem import Problem
    from beamsearch.records.job import Subject

Kernel = str | Path
"""A file, or the source itself: a text of several lines."""


def subject_of(kernel: Kernel) -> Subject:
    """What the judge is given, by the file's name or as `kernel`. Raises KernelError where a file
    cannot be read; what it holds is for the judge to say."""
    from beamsearch.records.job import Subject

    if is_source(kernel):
        return Subject(name="kernel", source=str(kernel))
    path = Path(kernel)
    try:
        return Subject(name=path.stem, source=path.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"cannot read the kernel file {path}: {error}") from error


def is_source(given: object) -> bool:
    """Whether a text is source, and not the name of a file."""
    return isinstance(given, str) and "\n" in given


def own_kernel(problem: Problem) -> Path:
    """The first kernel beside a problem. Raises UsageError where there is none."""
    if problem.input_kernel is None:
        raise UsageError(f"{problem.name} has no input_kernel.py; name a kernel file")
    return problem.input_kernel
