"""Notes on techniques, in files that a user may edit (`prompts/knowledge/*.md`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from beamsearch.errors import UsageError
from beamsearch.paths import data_folder
from beamsearch.records.record import Record
from kernel_profiling.extensions import NOTES, extensions
from kernel_profiling.findings.findings import kinds

KEYS = ("title", "findings", "mentions", "capability")


class Note(Record):
    """One technique: what it answers, where it fits, what to do and when it does not help."""

    file: str
    title: str
    findings: list[str]
    """Kinds of findings."""
    mentions: str = ""
    """Regular expression that the problem or the kernel must match; empty fits all."""
    capability: float = 0.0
    """Least compute capability of the GPU, as `9.0`."""
    text: str


def read_notes(folder: Path | None = None) -> list[Note]:
    """Every note of a folder, by file name; without one, those that come along and those that other
    packages bring. Raises UsageError that names a file which is none."""
    folders = [folder] if folder else [data_folder("prompts") / "knowledge", *_brought()]
    paths = [path for folder in folders for path in sorted(folder.glob("*.md"))]
    return [_read(path) for path in paths if path.name != "README.md"]


def _brought() -> list[Path]:
    return [Path(path) for package in extensions(NOTES).values() for path in package.__path__]


def fitting(
    known: Sequence[Note], *, findings: Sequence[str], text: str, capability: float | None
) -> list[Note]:
    """The notes that fit, best first: by the rank of the finding they answer, then those that look
    for words of the problem. `findings`: kinds by rank. `text`: problem and kernel. A GPU whose
    capability is not known fits every note."""

    def rank(note: Note) -> tuple[int, bool, str]:
        best = min(findings.index(kind) for kind in note.findings if kind in findings)
        return best, not note.mentions, note.file

    fit = [
        note
        for note in known
        if any(kind in findings for kind in note.findings)
        and re.search(note.mentions, text, re.IGNORECASE)
        and (capability is None or capability >= note.capability)
    ]
    return sorted(fit, key=rank)


@cache
def _read(path: Path) -> Note:
    match = re.fullmatch(r"---\n(.*?)\n---\n(.*)", path.read_text(), re.DOTALL)
    if match is None:
        raise UsageError(f"{path} does not begin with a head between two lines of ---")
    fields: dict[str, str] = {}
    for line in match[1].splitlines():
        key, _, value = line.partition(":")
        if key.strip() not in KEYS:
            raise UsageError(f"{path}: unknown key {key.strip()!r}; known: {', '.join(KEYS)}")
        fields[key.strip()] = value.strip()
    try:
        re.compile(fields.get("mentions", ""))
        return Note(
            file=path.name,
            title=fields["title"],
            findings=[_kind(kind.strip()) for kind in fields["findings"].split(",")],
            mentions=fields.get("mentions", ""),
            capability=float(fields.get("capability", "0")),
            text=" ".join(match[2].split()),
        )
    except KeyError as error:
        raise UsageError(f"{path}: the head lacks {error}") from error
    except (ValueError, re.error) as error:
        raise UsageError(f"{path}: {error}") from error


def _kind(name: str) -> str:
    if name not in (known := kinds()):
        raise ValueError(f"{name!r} is no kind of finding; known: {', '.join(known)}")
    return name
