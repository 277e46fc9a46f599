"""When two traces are equal: same files, same contents but for clocks and latencies."""

import json
from pathlib import Path

CLOCKS = {"seconds", "latency_s", "retries"}
UNRECORDED = {".lock", ".secret_seed"}


def contents(folder: Path) -> dict[str, object]:
    """Every file of a run by its path, JSON without its clocks."""
    files = {}
    for path in sorted(folder.rglob("*")):
        if path.is_file() and path.name not in UNRECORDED:
            text = path.read_text()
            name = path.relative_to(folder).as_posix()
            files[name] = timeless(json.loads(text)) if path.suffix == ".json" else text
    return files


def timeless(value: object) -> object:
    """The value without what a clock says."""
    if isinstance(value, dict):
        return {key: timeless(item) for key, item in value.items() if key not in CLOCKS}
    if isinstance(value, list):
        return [timeless(item) for item in value]
    return value


def differences(one: Path, other: Path) -> list[str]:
    """Names of files that only one run has, or that differ."""
    left, right = contents(one), contents(other)
    return sorted(name for name in left.keys() | right.keys() if left.get(name) != right.get(name))
