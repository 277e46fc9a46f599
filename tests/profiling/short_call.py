"""A call under a tool that ends: it says so in the file it is told."""

import sys
from pathlib import Path

from beamsearch.judge.nvidia_tools.standing_by import StandingBy

standing_by = StandingBy(Path(sys.argv[1]))
spec = Path(standing_by.told())
if standing_by.has_turn():
    spec.write_text("called")
