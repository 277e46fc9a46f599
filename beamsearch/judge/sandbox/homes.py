"""The folders of candidates' processes, taken away whatever was left in them."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path


def remove(folder: Path) -> None:
    """Take a folder away; what the system refuses stays."""
    try:
        shutil.rmtree(folder, ignore_errors=True)
    except RecursionError:  # more levels than Python's stack has
        subprocess.run(["rm", "-rf", "--", str(folder)], capture_output=True, check=False)
