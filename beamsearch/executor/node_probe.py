"""What Ray runs on a node to ask about it. Its own code travels there, so it imports nothing that
the node may not have."""

from __future__ import annotations

import os
import subprocess
import sys

TIMEOUT_S = 150.0
"""Importing torch from a cold network disk takes a minute."""


def is_there() -> bool:
    """Yes."""
    return True


def ask(*options: str) -> tuple[str, str]:
    """The facts of this machine as JSON, or nothing, and then why."""
    # A task that asks for no GPU sees none; its number is what is asked here.
    env = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    env["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    command = [sys.executable, "-m", "beamsearch.executor.node_facts", *options]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=env, timeout=TIMEOUT_S, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    if done.returncode:
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        return "", lines[-1].strip() if lines else f"exit code {done.returncode}"
    return done.stdout, ""
