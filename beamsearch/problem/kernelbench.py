"""KernelBench's problems, in a checkout of it: `level1/43`."""

from __future__ import annotations

import re
from pathlib import Path

from beamsearch.errors import ProblemError

_NAME = re.compile(r"(level\d+)(?:/(\w*))?")
WHOLE = ("level1", "level2", "level3")
"""Levels whose files are problems by themselves; the fourth needs the configurations of its models,
see `pretrained.py`."""


def is_kernelbench(name: str) -> bool:
    """Whether this names a level of KernelBench, or one of its problems."""
    return _NAME.fullmatch(name) is not None


def kernelbench_files(checkout: Path | None, name: str) -> list[Path]:
    """The files that `level1`, `level1/43` or `level1/43_Max` means, in the order of their numbers.
    Raises ProblemError where there is none."""
    match = _NAME.fullmatch(name)
    assert match is not None
    level, wanted = match[1], match[2] or ""
    if checkout is None:
        raise ProblemError(f"{name} is of KernelBench: say where it lies with --kernelbench DIR")
    folders = [checkout / level, checkout / "KernelBench" / level]
    folder = next((folder for folder in folders if folder.is_dir()), None)
    if folder is None:
        raise ProblemError(
            f"{checkout} has no {level}; --kernelbench takes a checkout of KernelBench, or the "
            "folder in it that holds the levels"
        )
    pattern = re.compile(rf"{wanted}(?!\d).*\.py" if wanted.isdigit() else rf"{wanted}.*\.py")
    found = [path for path in folder.iterdir() if pattern.fullmatch(path.name)]
    if not found:
        numbers = [_number(path) for path in folder.glob("*.py")]
        raise ProblemError(
            f"no problem {wanted!r} in {folder}; its numbers are {min(numbers, default=0)} to "
            f"{max(numbers, default=0)}"
        )
    return sorted(found, key=_number)


def _number(path: Path) -> int:
    match = re.match(r"\d+", path.name)
    return int(match[0]) if match else 0
