"""Prompts, problems and artifacts, found in a checkout and in an installed wheel alike."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def data_folder(name: str) -> Path:
    """Folder `prompts`, `problems` or `artifacts` of the project.

    A wheel carries them inside the package; a checkout has them beside it.
    """
    packaged = PACKAGE / "_data" / name
    return packaged if packaged.is_dir() else PACKAGE.parent / name
