"""The command line as a process of its own."""

import subprocess
from pathlib import Path

import pytest

from tests import commands


@pytest.fixture
def beamsearch(tmp_path):
    """Runs `beamsearch ARGUMENTS` in a folder elsewhere, with no endpoint and its own cache."""

    def call(*arguments: str, cwd: Path = tmp_path, **env: str) -> subprocess.CompletedProcess[str]:
        hidden = ("OPENAI_API_KEY", "OPENAI_BASE_URL")
        own = {"XDG_CACHE_HOME": tmp_path / "cache"} | env
        return commands.beamsearch(*arguments, cwd=cwd, timeout=250, hidden=hidden, **own)

    return call
