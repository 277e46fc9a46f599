"""Prompts of runs on problems whose text is not ours to hand on, as examples without it.

`python -m tools.keep_prompts FOLDER WORKER…` writes the questions for a diagnosis and for variants
of each worker's folder (`RUN/optimization_trace/round_2/workers/w0`) without their first block of
code, which is the problem; and a table of their tokens.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from beamsearch.llm.types import approximate_tokens

PURPOSES = {"bottleneck_prompt.txt": "diagnosis", "opt_prompt.txt": "variants"}
LEFT_OUT = "(left out here: the text of the problem's file)"
_PROBLEM = re.compile(r"(The reference, in PyTorch:\n\n)```python\n.*?\n```\n", re.DOTALL)


def without_problem(prompt: str) -> str:
    """The prompt with a note in place of the reference. Raises ValueError where there is none, or
    two."""
    text, count = _PROBLEM.subn(lambda found: f"{found[1]}{LEFT_OUT}\n", prompt)
    if count != 1:
        raise ValueError(f"{count} references in it where one is expected")
    return text


def keep(folder: Path, workers: list[Path]) -> str:
    """Write the examples; a table of them, in Markdown. Raises OSError and ValueError."""
    rows = ["| prompt | tokens, with the problem |", "|---|---:|"]
    for worker in workers:
        run, number = worker.parents[3].name, worker.parents[1].name.removeprefix("round_")
        for file, purpose in PURPOSES.items():
            prompt = (worker / file).read_text()
            name = f"{run}-r{number}-{worker.name}-{purpose}.txt"
            (folder / name).write_text(without_problem(prompt))
            rows.append(f"| [{name}]({folder.name}/{name}) | {approximate_tokens(prompt):,} |")
    return "\n".join(rows)


def main() -> None:
    """Keep the prompts of the workers that are named."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, metavar="FOLDER")
    parser.add_argument("workers", type=Path, nargs="+", metavar="WORKER")
    given = parser.parse_args()
    try:
        given.folder.mkdir(parents=True, exist_ok=True)
        print(keep(given.folder, [worker.resolve() for worker in given.workers]))
    except (OSError, ValueError) as error:
        sys.exit(f"keep_prompts: {error}")


if __name__ == "__main__":
    main()
