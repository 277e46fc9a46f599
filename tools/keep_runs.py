"""Runs on problems whose text is not ours to hand on, kept without it.

`python -m tools.keep_runs FILE RUN…` writes what a run has measured and what was answered, finished
or not, into one archive: without the problem, the prompts (which quote it) and what is made anew.
A suite's suite.json may stand among the runs, for `suite --report`.
`python -m tools.keep_runs FILE --restore FOLDER --problems DIR` lays the runs out again, each
beside the problem of its name from DIR (a checkout of KernelBench, or `problems`); `resume` goes on
with them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tarfile
from pathlib import Path

LEFT_OUT = (
    *("problem.py", "*prompt*.txt", "requests*.jsonl", "report.html", "*_texts", ".lock"),
    *(".scratch", "compiled"),
)
"""Names of files and folders: with the problem's text in them, or of no use elsewhere."""


def is_kept(path: Path) -> bool:
    """Whether a file of a run, by its path in the run's folder, goes into the archive."""
    return not any(Path(part).match(pattern) for part in path.parts for pattern in LEFT_OUT)


def keep(archive: Path, runs: list[Path]) -> None:
    """Write the runs, each below the name of its folder, and files as they are."""
    with tarfile.open(archive, "w:xz") as members:
        for run in runs:
            if run.is_file():
                members.add(run, run.name)
            for path in sorted(run.rglob("*")):
                inside = path.relative_to(run)
                if path.is_file() and is_kept(inside):
                    members.add(path, Path(run.name) / inside)


def restore(archive: Path, folder: Path, problems: Path) -> list[Path]:
    """The runs' folders. Raises FileNotFoundError for a problem that is not under `problems`."""
    folder.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive) as members:
        records = [Path(n) for n in members.getnames() if Path(n).match("*/run.json")]
        found: dict[str, Path] = {}
        for path in sorted(records):
            record = members.extractfile(str(path))
            assert record is not None
            problem = json.load(record)["problem"]
            named = (f"{problem}.py", f"{problem}/problem.py")
            file = next((f for name in named for f in problems.rglob(name)), None)
            if file is None:
                raise FileNotFoundError(f"no {problem}.py under {problems}")
            found[path.parent.name] = file
        members.extractall(folder, filter="data")
    for name, file in found.items():
        shutil.copyfile(file, folder / name / "problem.py")
    return [folder / name for name in found]


def main() -> None:
    """Keep the runs that are named, or lay them out."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path, metavar="FILE")
    parser.add_argument("runs", type=Path, nargs="*", metavar="RUN")
    parser.add_argument("--restore", type=Path, metavar="FOLDER")
    parser.add_argument("--problems", type=Path, metavar="DIR")
    given = parser.parse_args()
    try:
        if given.restore is None:
            keep(given.archive, given.runs)
        elif given.problems is None:
            parser.error("--restore needs --problems")
        else:
            for run in restore(given.archive, given.restore, given.problems):
                print(run)
    except OSError as error:
        sys.exit(f"keep_runs: {error}")


if __name__ == "__main__":
    main()
