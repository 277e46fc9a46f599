"""When two traces are equal: same files, same contents but for clocks and latencies."""

import json
from collections.abc import Collection
from pathlib import Path

CLOCKS = {"began", "saved", "seconds", "latency_s", "retries", "lane"}
UNRECORDED = {".lock", ".secret_seed", "report.html"}
"""Not of the record; the page is rebuilt from it, and shows its clocks."""


def contents(folder: Path, unlike: Collection[str] = ()) -> dict[str, object]:
    """Every file of a run by its path, JSON without its clocks and the keys of `unlike`."""
    clocks = CLOCKS | set(unlike)
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in UNRECORDED:
            text = path.read_text()
            name = path.relative_to(folder).as_posix()
            if path.suffix == ".json":
                files[name] = timeless(json.loads(text), clocks)
            elif path.suffix == ".jsonl":
                files[name] = [timeless(json.loads(line), clocks) for line in text.splitlines()]
            else:
                files[name] = text
    return files


def timeless(value: object, clocks: Collection[str]) -> object:
    """The value without what a clock says."""
    if isinstance(value, dict):
        return {key: timeless(item, clocks) for key, item in value.items() if key not in clocks}
    if isinstance(value, list):
        return [timeless(item, clocks) for item in value]
    return value


def differences(one: Path, other: Path, unlike: Collection[str] = ()) -> list[str]:
    """Names of files that only one run has, or that differ, keys of `unlike` aside."""
    left, right = contents(one, unlike), contents(other, unlike)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
