"""A call under a tool that ends: it says so in the file it is told."""

import sys
from pathlib import Path

from beamsearch.judge.nvidia_tools.standing_by import asked

Path(asked(*map(Path, sys.argv[1:]))).write_text("called")
