"""Draw the picture in the README: what a recorded run came to, as a terminal shows it.

`python tools/picture.py` writes docs/run.svg. It takes no GPU and a few seconds.
"""

from __future__ import annotations

import io
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PICTURE = ROOT / "docs" / "run.svg"
(RUN,) = (ROOT / "artifacts" / "claude").glob("77_*")
COMMAND = f"python -m beamsearch show {RUN.relative_to(ROOT)}"
COLUMNS = 118


def output() -> str:
    """What the command prints."""
    return subprocess.run(
        [sys.executable, *COMMAND.split()[1:]],
        cwd=ROOT,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout


def main() -> None:
    """Run the command and draw it with what it prints."""
    from rich.console import Console
    from rich.text import Text

    console = Console(record=True, width=COLUMNS, file=io.StringIO())
    console.print(Text(f"$ {COMMAND}", style="bold", overflow="fold"))
    console.print(Text(output(), overflow="fold"), end="")
    PICTURE.write_text(console.export_svg(title="beamsearch", unique_id="run"))


if __name__ == "__main__":
    main()
