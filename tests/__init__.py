"""Tests: real files, real processes, real servers."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTHONPATH = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
"""For a process that a test starts in another folder: this checkout, and what was there before."""
