"""Prompts, problems and artifacts, in a checkout and in an installed wheel; the cache; commands."""

import os
import shlex
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Folder `prompts`, `problems` or `artifacts` of the project.

    A wheel carries them inside the package; a checkout has them beside it.
    """
    packaged = PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else PACKAGE.parent / name


def cache_folder() -> Path:
    """Where measurements and models' configurations are kept: `$XDG_CACHE_HOME/beamsearch`."""
    root = os.environ.get("XDG_CACHE_HOME")
    return (Path(root) if root else Path.home() / ".cache") / "beamsearch"


def command(*words: str | Path) -> str:
    """A command line of this program as a person can paste it, whatever its paths hold."""
    return shlex.join(["python", "-m", "beamsearch", *map(str, words)])
