"""A finished run kept small: its results as files, and the whole of it in one archive beside them.

`tools.pack_run` makes such a folder; whoever reads a run finds it through `opened_run`.
"""

from __future__ import annotations

import atexit
import io
import lzma
import shutil
import tarfile
import tempfile
from functools import cache
from pathlib import Path, PurePosixPath

from beamsearch.errors import UsageError
from beamsearch.paths import command
from beamsearch.records.trace import Trace

ARCHIVE = "trace.tar.xz"


def opened_run(folder: Path) -> Trace:
    """A run's whole trace, for reading. Nothing is written into `folder`.

    A packed run is unpacked into a temporary folder, which is gone when this process ends. Raises
    UsageError where there is no run, or not the whole of it.
    """
    archive = folder / ARCHIVE
    if archive.is_file():
        return Trace(_unpacked(archive.resolve(), archive.stat().st_mtime_ns))
    trace = Trace(folder)
    if trace.run_record().rounds and not trace.input_record.is_file():
        raise UsageError(
            f"{folder} holds a run's results without its trace: {ARCHIVE} is missing there; a "
            "wheel leaves it out, a checkout of the project has it under artifacts/"
        )
    return trace


def written_run(folder: Path) -> Trace:
    """A run's trace, for writing. Raises UsageError where the run is packed."""
    if (folder / ARCHIVE).is_file():
        raise UsageError(
            f"{folder} holds a packed run, which is for reading; `{command('resume', folder)}` "
            "goes on with a copy of it"
        )
    return Trace(folder)


@cache
def _unpacked(archive: Path, mtime_ns: int) -> Path:
    """A folder with what the archive holds; `mtime_ns` tells one archive from the next."""
    folder = Path(tempfile.mkdtemp(prefix="beamsearch-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    try:
        whole = lzma.decompress(archive.read_bytes())  # to its end, where its checksum stands
        with tarfile.open(fileobj=io.BytesIO(whole), mode="r:") as members:
            for member in members:
                _unpack(members, member, folder)
    except (OSError, tarfile.TarError, lzma.LZMAError) as error:
        raise UsageError(f"cannot unpack {archive}: {error}") from error
    return folder


def _unpack(members: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    """One file, into a folder that holds nothing else but such files. Python 3.11 has
    `extractall(filter="data")` from 3.11.4 on only."""
    name = PurePosixPath(member.name)
    content = members.extractfile(member) if member.isfile() else None
    if content is None or name.is_absolute() or ".." in name.parts:
        raise tarfile.TarError(f"{member.name!r} is not a file within the run's folder")
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    with content, path.open("xb") as stream:
        shutil.copyfileobj(content, stream)
