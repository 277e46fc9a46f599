"""Which problems a suite or an audit is of, and what they are called."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from beamsearch.errors import ProblemError
from beamsearch.problem.kernelbench import WHOLE, is_kernelbench, kernelbench_files
from beamsearch.problem.problem import FILES, find_file, list_problems, name_of


def files_of(names: Sequence[str], kernelbench: Path | None) -> list[Path]:
    """The files of the named problems, each once, unread: those that come along where none is
    named. Raises ProblemError."""
    found: dict[Path, None] = {}
    for given in names or (WHOLE if kernelbench else list_problems()):
        for name in _listed(Path(given)) if _is_list(Path(given)) else [given]:
            found |= dict.fromkeys(path.resolve() for path in _files(name, kernelbench))
    return list(found)


def _is_list(path: Path) -> bool:
    return path.is_file() and path.suffix != ".py"


def _listed(path: Path) -> list[str]:
    """The names in a file, one a line, without what follows a `#`."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ProblemError(f"cannot read the list {path}: {error}") from error
    names = [re.sub(r"(^|\s)#.*", "", line).strip() for line in lines]
    if not any(names):
        raise ProblemError(f"{path} names no problem; write one name a line")
    return [name for name in names if name]


def _files(name: str, kernelbench: Path | None) -> list[Path]:
    """The files that one name means."""
    folder = Path(name)
    if is_kernelbench(name) and not folder.is_dir():
        return kernelbench_files(kernelbench, name)
    if folder.is_dir() and not any((folder / own).is_file() for own in FILES):
        patterns = ("*.py", *(f"*/{own}" for own in FILES))
        here = sorted(path for pattern in patterns for path in folder.glob(pattern))
        if not here:
            raise ProblemError(f"no problem in {folder}: none of {', '.join(patterns)}")
        return here
    return [find_file(name, kernelbench)]


def unique_names(paths: Sequence[Path], taken: Collection[str] = ()) -> list[str]:
    """A name for each problem that no other has, nor a file beside the runs (`taken`): its own, or
    with the folder that its file is in, or with a number."""
    given: list[str] = []
    for path in paths:
        own = name_of(path)
        folder = path.parent.parent if path.name in FILES else path.parent
        several = [own, f"{folder.name}_{own}"]
        several += [f"{own}_{number}" for number in range(2, len(paths) + 2)]
        given.append(next(name for name in several if name not in given and name not in taken))
    return given
