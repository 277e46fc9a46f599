"""`python -m beamsearch`, and what it says to a Python that lacks what it needs."""

from __future__ import annotations

import atexit
import os
import sys
from typing import NoReturn

OLDEST = (3, 11)
"""The first Python that it runs on."""
OWN = ("beamsearch", "kernel_profiling")


def start(arguments: list[str] | None = None) -> NoReturn:
    """Run a command line (default: this process's) and end the process with its exit code."""
    if sys.version_info < OLDEST:
        _refuse(
            "this is Python {}.{}; beamsearch needs {}.{} or later".format(
                *sys.version_info[:2], *OLDEST
            )
        )
    codes: list[object] = []
    atexit.register(_leave, codes)  # the first that is registered is called last
    try:
        from beamsearch.cli.app import main

        main(arguments)
    except SystemExit as end:
        codes.append(end.code)
        raise
    except ModuleNotFoundError as error:
        missing = str(error.name).partition(".")[0]
        if missing in OWN:
            raise
        _refuse(f"{missing} is not installed for {sys.executable}")


def _leave(codes: list[object]) -> None:
    """End the process with its exit code, if it has one: for Python to take apart all that torch
    imported takes a second."""
    for code in codes:
        if isinstance(code, int):
            try:
                sys.stdout.flush()
                sys.stderr.flush()
            except (OSError, ValueError):  # Python tells what it cannot write
                return
            os._exit(code)


def _refuse(why: str) -> NoReturn:
    sys.stderr.write(
        f"error: {why}; use the Python that beamsearch is installed for, such as .venv/bin/python, "
        "or install it: python3 -m venv .venv && .venv/bin/pip install -e .\n"
    )
    sys.exit(2)


if __name__ == "__main__":
    start()
