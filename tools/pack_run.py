"""Keep a finished run small: its results as files, and the whole of it in one archive beside them.

`python -m tools.pack_run RUN TARGET` leaves `run.json`, `results.tsv`, the kernels and
`trace.tar.xz` in TARGET; with `--rounds` also what a person reads a run by: the problem, the
confirmation and each round's own files. The archive is the same however often it is made. Hidden
files (locks, secret seeds, half-written ones) are left out.
"""

from __future__ import annotations

import argparse
import lzma
import shutil
import sys
import tarfile
from pathlib import Path

from beamsearch.errors import BeamsearchError, UsageError
from beamsearch.records.packed import ARCHIVE, opened_run
from beamsearch.records.trace import WORKER_FILES, Trace

PRESET = 7 | lzma.PRESET_EXTREME
"""A dictionary of 16 MiB: more than a run has, so that what stands in it twice is kept once."""


def main() -> None:
    """Pack the run that is named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    parser.add_argument("target", type=Path, metavar="TARGET")
    parser.add_argument("--rounds", action="store_true", help="leave each round's own files too")
    given = parser.parse_args()
    try:
        pack(given.run, given.target, rounds=given.rounds)
    except (BeamsearchError, OSError) as error:
        sys.exit(f"pack_run: {error}")
    sizes = [path.stat().st_size for path in given.target.rglob("*") if path.is_file()]
    print(f"{given.target}: {len(sizes)} files, {sum(sizes) / 1e6:.2f} MB")


def pack(run: Path, target: Path, *, rounds: bool) -> None:
    """Leave the packed form of a run, packed or not, in a new folder.

    Raises UsageError where the run is not finished or `target` holds something.
    """
    trace = opened_run(run)
    if trace.run_record().status != "finished":
        raise UsageError(f"{run} is not finished; `resume` goes on with it")
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise UsageError(f"{target} is not an empty folder")
    target.mkdir(parents=True, exist_ok=True)
    for path in kept(trace, rounds):
        copy = target / path.relative_to(trace.folder)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    write_archive(trace.folder, target / ARCHIVE)


def kept(trace: Trace, rounds: bool) -> list[Path]:
    """What stays a file of its own."""
    files = [trace.run_file, trace.results_file, trace.prices_file]
    files += [trace.input_file, trace.best_kernel_file]
    if rounds:
        files += [trace.problem_file, trace.confirmation_file]
        names = (*WORKER_FILES, "benchmark_results.json", "round.json")
        for done in trace.completed_rounds():
            files += [trace.round(done.round) / name for name in names]
    return [path for path in files if path.is_file()]


def write_archive(folder: Path, archive: Path) -> None:
    """Every file of a folder but hidden ones and what the others give again, by name."""
    with tarfile.open(archive, "w:xz", preset=PRESET) as members:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder)
            made_anew = path in (Trace(folder).page_file, Trace(folder).picture_file)
            hidden = any(part.startswith(".") for part in name.parts)
            if path.is_file() and not (made_anew or hidden):
                member = tarfile.TarInfo(name.as_posix())  # no owner, and a clock at 0
                member.size = path.stat().st_size
                with path.open("rb") as content:
                    members.addfile(member, content)


if __name__ == "__main__":
    main()
