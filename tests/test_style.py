"""What everybody who changes this project agrees on: format, lint, types, rooms, sizes."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests import ROOT

MOST_LINES = 400
MOST_LINES_OF_A_FUNCTION = 60
OURS = ("beamsearch", "profiling")


@pytest.mark.parametrize(
    "command",
    [("ruff", "check"), ("ruff", "format", "--check"), ("mypy",)],
    ids=lambda command: " ".join(command),
)
def test_style(command):
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_import_runs_back_up_and_there_is_no_circle():
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([linter], cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    rooms = {p.name for p in (ROOT / "beamsearch").iterdir() if (p / "__init__.py").is_file()}
    contracts = (ROOT / "pyproject.toml").read_text()
    assert rooms, "no rooms"
    for room in rooms:
        assert f'"beamsearch.{room}"' in contracts, f"no contract names {room}"


def test_the_root_holds_no_rooms_work():
    files = {path.name for path in (ROOT / "beamsearch").glob("*.py")}
    assert files == {"__init__.py", "__main__.py", "errors.py", "paths.py", "settings.py"}


def test_no_file_and_no_function_is_two_things():
    long = []
    for path in (path for folder in OURS for path in sorted((ROOT / folder).rglob("*.py"))):
        source = path.read_text()
        name = path.relative_to(ROOT)
        if (lines := len(source.splitlines())) > MOST_LINES:
            long.append(f"{name}: {lines} lines")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_LINES_OF_A_FUNCTION:
                    long.append(f"{name}: {node.name} has {lines} lines")
    assert not long
