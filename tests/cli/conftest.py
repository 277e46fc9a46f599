"""The command line as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import PYTHONPATH


@pytest.fixture
def beamsearch(tmp_path):
    """Runs `beamsearch ARGUMENTS` in a folder elsewhere, with no endpoint and its own cache."""
    hidden = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
    clean = {key: value for key, value in os.environ.items() if key not in hidden}
    clean |= {"PYTHONPATH": PYTHONPATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}

    def call(*arguments: str, cwd: Path = tmp_path, **env: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "beamsearch", *arguments],
            cwd=cwd,
            env=clean | env,
            capture_output=True,
            text=True,
            timeout=250,
        )

    return call
