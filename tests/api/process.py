"""The library in a fresh process, as in a script of somebody's."""

import os
import subprocess
import sys
from pathlib import Path

from tests import PYTHONPATH


def python(*arguments: object, cwd: Path, **environment: object) -> str:
    """What a process prints. It must end well."""
    hidden = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
    seen = {name: value for name, value in os.environ.items() if name not in hidden}
    seen |= {"PYTHONPATH": PYTHONPATH, "XDG_CACHE_HOME": str(cwd / "cache")}
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=seen | {name: str(value) for name, value in environment.items()},
        capture_output=True,
        text=True,
        timeout=290,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
