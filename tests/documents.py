"""README.md and the pages under docs/: what they show a reader to type, and what they name."""

from __future__ import annotations

import ast
import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from beamsearch.cli.app import app
from beamsearch.problem.kernelbench import is_kernelbench
from beamsearch.problem.problem import find_problem
from beamsearch.settings import read_settings

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SHELLS = ("sh", "bash", "console")
FENCE = re.compile(r"^```(?P<language>\w*) ?(?P<file>\S*)\n(?P<text>.*?)^```$", re.M | re.S)
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]*")
SAMPLES = {
    "PROBLEM": "43",
    "RUN": "artifacts/playbook/36_RMSNorm",
    "KERNEL": "problems/36_RMSNorm/input_kernel.py",
}
"""What stands in a command line for what a reader has to put there."""
NOT_OURS = ("cd", "export", "head", "source", "vllm")
"""Programs whose arguments are not ours to check, but for the files among them."""
MAKES = ("--output", "-o", "--svg", "venv")
"""The word after one of these is made by the command."""
ROOTS = [ROOT / "beamsearch", ROOT / "profiling" / "kernel_profiling"]
SUFFIXES = "py|md|json|jsonl|tsv|toml|svg|txt|j2"


class Untrue(Exception):
    """A document says what is not so."""


@dataclass(frozen=True)
class Command:
    """One command line of a page."""

    page: Path
    line: int
    words: tuple[str, ...]
    shown: bool = True
    """Whether it stands in a block of its own, for a reader to copy; else it is inside a text."""

    def __str__(self) -> str:
        return f"{self.page.name}:{self.line} {' '.join(self.words)}"


@dataclass
class Page:
    """What one page shows. `files` are those that it gives in full: name -> text."""

    path: Path
    text: str
    commands: list[Command] = field(default_factory=list)
    files: dict[str, str] = field(default_factory=dict)
    pythons: list[str] = field(default_factory=list)

    @property
    def prose(self) -> str:
        """The page without its blocks, every line at its place."""
        return FENCE.sub(lambda block: "\n" * block[0].count("\n"), self.text)

    @property
    def spans(self) -> Iterator[tuple[int, str]]:
        """What stands in backticks, with its line."""
        for match in re.finditer(r"`([^`]+)`", self.prose):
            yield self.prose.count("\n", 0, match.start()) + 1, " ".join(match[1].split())


def read_page(path: Path, text: str | None = None) -> Page:
    """A page, or a text as if it stood there. Raises Untrue where a block says no language."""
    page = Page(path, path.read_text() if text is None else text)
    for block in FENCE.finditer(page.text):
        line = page.text.count("\n", 0, block.start()) + 1
        if not block["language"]:
            raise Untrue(f"{path.name}:{line}: a block without a language")
        if block["file"]:
            page.files[block["file"]] = block["text"]
        if block["language"] == "python":
            page.pythons.append(block["text"])
        if block["language"] in SHELLS:
            page.commands += _in_block(path, line, block["text"], block["language"] == "console")
    for line, span in page.spans:
        if re.match(r"python3? ", span):
            text = re.sub(r"[\[\]…]", " ", span)
            page.commands += [
                Command(path, line, tuple(SAMPLES.get(word, word) for word in words), shown=False)
                for words in split(text)
            ]
    return page


def _in_block(path: Path, line: int, text: str, prompts: bool) -> Iterator[Command]:
    joined = text.replace("\\\n", "  ")
    for number, shown in enumerate(joined.splitlines(), line + 1):
        if prompts and not shown.startswith("$ "):
            continue
        for words in split(shown.removeprefix("$ ")):
            yield Command(path, number, tuple(words))


def split(line: str) -> list[list[str]]:
    """The commands of a shell line, each as its words, without assignments and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("&|;"):
            commands.append([])
        elif commands[-1] or not re.match(r"\w+=", word):
            commands[-1].append(word)
    return [words for words in commands if words]


def check_command(command: Command, folder: Path, made: list[str]) -> None:
    """Raise Untrue, or what the command line raises, where it cannot be as it is shown.

    `folder` is the current one; `made`: what earlier commands of the page make, added to.
    """
    program, *rest = command.words
    name = Path(program).name
    if name.startswith("python"):
        check_python(rest, made)
    elif name == "beamsearch":
        check_ours(rest, made)
    elif name != "pip" and name not in NOT_OURS:
        raise Untrue(f"{command}: {program} is no program that documents may show")
    for before, word in zip(command.words, command.words[1:], strict=False):
        if before in MAKES:
            made.append(word)
        elif (reason := reason_missing(word, folder, made)) is not None:
            raise Untrue(f"{command}: {reason}")


def check_python(words: list[str], made: list[str]) -> None:
    """Check what follows `python` on a command line; `made` as in `check_command`."""
    if words[:2] == ["-m", "beamsearch"]:
        check_ours(words[2:], made)
    elif words[0] == "benchmark.py":
        check_ours(["benchmark", *words[1:]], made)
    else:
        program = tuple(words[:2] if words[0] == "-m" else words[:1])
        if program[0] == "-m" and not is_module(program[1]):
            raise Untrue(f"there is no module {program[1]}")
        given = {word.partition("=")[0] for word in words if word.startswith("--")}
        if given and (unknown := given - options_of_program(program)):
            raise Untrue(f"{' '.join(program)} takes no {', '.join(sorted(unknown))}")


def is_module(name: str) -> bool:
    """Whether `python -m` finds it."""
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def check_ours(words: list[str], made: list[str]) -> None:
    """Have our command line read the words, without doing what they say. Raises what it raises. A
    problem may be one of those that earlier commands `made`."""
    group: Any = typer.main.get_command(app)
    if words in ([], ["--help"], ["--version"]):
        return
    verb = group.commands.get(words[0])
    if verb is None:
        raise Untrue(f"there is no command {words[0]}")
    if words[1:] and words[1] in getattr(verb, "commands", ()):
        verb, words = verb.commands[words[1]], words[1:]
    if words[1:] != ["--help"]:
        given = verb.make_context(words[0], list(words[1:])).params
        problem = given.get("problem")
        # A checkout of KernelBench is the reader's.
        theirs = given.get("kernelbench") and is_kernelbench(str(problem))
        if isinstance(problem, str) and problem not in made and not theirs:
            find_problem(problem)


@cache
def options_of_program(program: tuple[str, ...]) -> frozenset[str]:
    """The options that a script or module of the repository says it takes."""
    done = subprocess.run(
        [sys.executable, *program, "--help"], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    return frozenset(OPTION.findall(done.stdout))


@cache
def names() -> frozenset[str]:
    """Names of the files that are in the repository, those of recorded runs too."""
    ours = [path for path in ROOT.iterdir() if path.name[0] != "." and path.name != "runs"]
    below = (path for folder in ours for path in folder.rglob("*"))
    return frozenset(path.name for path in (*ours, *below))


@cache
def sources() -> str:
    """All that `beamsearch` is made of."""
    return "".join(path.read_text() for path in sorted((ROOT / "beamsearch").rglob("*.py")))


@cache
def our_options() -> frozenset[str]:
    """The options of all our verbs."""
    group: Any = typer.main.get_command(app)
    verbs = [group, *group.commands.values()]
    verbs += [verb for part in verbs[1:] for verb in getattr(part, "commands", {}).values()]
    return frozenset(o for verb in verbs for p in verb.params for o in p.opts) | {"--help"}


def reason_missing(word: str, folder: Path, made: list[str]) -> str | None:
    """Why a word that looks like a path leads nowhere; none where it does, or looks otherwise."""
    text = word.removeprefix("replay:")
    looks = "/" in text or re.search(rf"\.({SUFFIXES})$", text)
    if not looks or text.startswith("-") or re.match(r"[\w+]*://|.*=\w*://", text):
        return None
    if is_kernelbench(text) or text.startswith("../"):  # beside the repository: the reader's
        return None
    if any(text == name or text.startswith(f"{name}/") for name in made):
        return None
    return None if any(folder.glob(text)) else f"there is no {text}"


def write_files(page: Page, folder: Path) -> None:
    """Put the files that a page gives in full into a folder. Raises where one is not in order."""
    for name, text in page.files.items():
        path = folder / name
        if path.exists():
            raise Untrue(f"{page.path.name}: {name} is a file of the repository")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if path.suffix == ".toml" and path.name != "pyproject.toml":
            read_settings(path, {})


def check_imports(source: str) -> None:
    """Raise Untrue where a name that an example imports is not there."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and node.module:
            module = import_module(node.module)
            if missing := [name.name for name in node.names if not hasattr(module, name.name)]:
                raise Untrue(f"{node.module} has no {missing[0]}")


def reason_not_there(span: str, page: Page | None = None) -> str | None:
    """Why what stands in backticks, and looks like a path of the repository, is none."""
    if not re.fullmatch(r"[\w.*{}-]+(/[\w.*{}-]+)*/?", span):
        return None
    first, rest = span.partition("/")[::2]
    if rest:
        # A room of one of the packages may be named without the package.
        roots = [ROOT, *ROOTS] if (ROOT / first).exists() else ROOTS
        known = any((root / first).is_dir() for root in roots)
        there = any(any(root.glob(span.rstrip("/"))) for root in roots)
        return f"there is no {span}" if known and not there else None
    if not re.search(rf"\.({SUFFIXES})$", span) or (page and span in page.files):
        return None
    if span not in names() and span not in sources():
        return f"no file is called {span}, and nothing writes one"
    return None
