"""README.md and docs/ say what is so: their commands, options, files and links are there."""

import html
import re
import subprocess
import sys
from pathlib import Path

import pytest

from beamsearch.cli.app import app
from beamsearch.settings import Settings
from tests.documents import (
    OPTION,
    PAGES,
    ROOT,
    ROOTS,
    Command,
    Page,
    Untrue,
    check_command,
    check_imports,
    options_of_program,
    our_options,
    read_page,
    reason_not_there,
    write_files,
)
from tools.picture import COMMAND, PICTURE, output

NAMES = [path.name for path in PAGES]
FIELDS = Settings.model_fields
QUICK = (
    *("new", "export", "show", "compare", "runs", "watch", "problems", "doctor", "--help"),
    "--version",
)
"""Verbs that end in seconds on any machine. The others are only read, as a shell and our command
line read them; `verify` runs where its kernel is small, one that the page itself gives."""


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """A folder like the repository's, to be current and to be written in."""
    for path in ROOT.iterdir():
        if path.name not in (".git", ".venv", "runs"):
            (tmp_path / path.name).symlink_to(path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def check(page: Page, folder: Path) -> None:
    """Every command of a page, in the order in which it shows them."""
    write_files(page, folder)
    made: list[str] = []
    for command in page.commands:
        check_command(command, folder, made)


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_every_command_exists_with_its_options_and_files(path, folder):
    page = read_page(path)
    check(page, folder)
    for source in page.pythons:
        check_imports(source)


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_what_ends_in_seconds_runs(path, folder):
    page = read_page(path)
    write_files(page, folder)
    for command in filter(lambda command: is_quick(command, page), page.commands):
        program, *rest = command.words
        words = [sys.executable if program == "python" else program, *rest]
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=200)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        assert done.stdout


def is_quick(command: Command, page: Page) -> bool:
    """Whether a command of a block is one to be run here."""
    program, *rest = command.words
    if not command.shown or program == "head":
        return command.shown
    ours = program == "python" and rest[:2] == ["-m", "beamsearch"]
    small = "verify" in rest and all(word in page.files for word in rest[3:])
    return ours and (any(word in QUICK for word in rest[2:]) or small)


@pytest.mark.parametrize("path", PAGES, ids=NAMES)
def test_every_option_path_and_link_in_a_text_is_there(path):
    page = read_page(path)
    modules = {command.words[1:3] for command in page.commands if command.words[1:2] == ("-m",)}
    others = ("tests.", "tools.", "pytest")
    studies = [program for program in modules if program[1].startswith(others)]
    for line, span in page.spans:
        where = f"{path.name}:{line}: `{span}`"
        for option in OPTION.findall(span):
            known = option in our_options() or any(
                option in options_of_program(program) for program in studies
            )
            assert known, f"{where}: no command takes {option}"
        reason = reason_not_there(span, page)
        assert reason is None, f"{where}: {reason}"
    for target in re.findall(r"\]\(([^)\s]+)\)", page.prose):
        file, _, heading = target.partition("#")
        linked = path.parent / file if file else path
        assert linked.exists(), f"{path.name} links to {target}"
        if heading:
            headings = re.findall(r"^#+ (.*)$", linked.read_text(), re.M)
            assert heading in [anchor(text) for text in headings], f"{path.name}: {target}"


def anchor(heading: str) -> str:
    """The fragment by which a heading is linked to."""
    return re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("```sh\npython -m beamsearch run 43 --rouds 3\n```\n", "No such option"),
        ("```sh\npython -m beamsearch run 43 --rounds three\n```\n", "valid integer"),
        ("```sh\npython -m beamsearch run 99\n```\n", "no problem"),
        ("```sh\npython -m beamsearch simulate\n```\n", "no command simulate"),
        ("```sh\npython -m beamsearch show\n```\n", "Missing"),
        ("```sh\nA=b python -m beamsearch show runs/43\n```\n", "no runs/43"),
        ("```console\n$ python -m beamsearch show artifacts/nobody/43\n```\n", "no artifacts/nob"),
        ("```bash\npython benchmark.py \\\n  --devise 1\n```\n", "No such option"),
        ("```sh\npython tools/fit_landscap.py\n```\n", "no tools/fit_landscap.py"),
        ("```sh\npython tools/fit_model.py --fit\n```\n", "takes no --fit"),
        ("```sh\npython -m tests.judge.sweet\n```\n", "no module"),
        ("```sh\nls && beamseerch run 43\n```\n", "no program"),
        ("By `python -m beamsearch resume RUN --rouns 3`.\n", "No such option"),
        ('```toml some.toml\nround = "3"\n```\n', "unknown setting 'round'"),
        ("```\npython -m beamsearch\n```\n", "without a language"),
    ],
)
def test_what_is_not_so_is_found(text, reason, folder):
    with pytest.raises(Exception, match=reason):
        check(read_page(ROOT / "docs" / "made_up.md", text), folder)


def test_what_an_earlier_command_of_the_page_made_is_there(folder):
    shown = "```sh\npython -m beamsearch run 43 --output runs/a # first\ncd runs/a/b\n```\n"
    check(read_page(ROOT / "docs" / "made_up.md", shown), folder)
    with pytest.raises(Untrue, match="no runs/a/b"):
        check(read_page(ROOT / "docs" / "made_up.md", shown.replace("a #", "other #")), folder)


def test_a_path_that_is_not_there_is_found():
    there = [
        "beamsearch/search/strategies.py",
        "judge/runner/",
        "run.json",
        "learned.json",
        "prompts/*.j2",
    ]
    assert [reason_not_there(span) for span in there] == [None] * len(there)
    gone = ["beamsearch/simulation/landscape.json", "judge/walls/", "summary.json", "prompts/*.md"]
    assert all(reason_not_there(span) for span in gone)


def test_the_settings_table_has_every_setting_with_its_default():
    rows = table(ROOT / "docs" / "running.md", "| key |")
    keys = {key for row in rows for key in re.findall(r"`(\w+)`", row[0])}
    assert keys == {name.removesuffix("_s") if "limit" in name else name for name in FIELDS}
    for row in rows:
        for key in re.findall(r"`(\w+)`", row[0]):
            default = FIELDS.get(key, FIELDS.get(f"{key}_s")).default
            if isinstance(default, int | float) and not isinstance(default, bool):
                numbers = [float(word) for word in re.findall(r"[\d.]+", row[2])]
                assert default in numbers, (key, default, row[2])


def test_the_table_of_commands_has_every_verb():
    rows = table(ROOT / "docs" / "running.md", "| |")
    shown = [re.match(r"`(\w+)", row[0])[1] for row in rows]
    assert sorted(shown) == sorted(
        verb.name for verb in (*app.registered_commands, *app.registered_groups)
    )


def table(path: Path, head: str) -> list[list[str]]:
    """The rows of the first table of a page that begins so, cell by cell."""
    lines = path.read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith(head))
    rows = []
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        rows.append([cell.strip() for cell in line.strip("|").split("|")])
    return rows


def test_the_architecture_names_every_room():
    text = (ROOT / "docs" / "architecture.md").read_text()
    for root in ROOTS:
        for room in root.iterdir():
            if (room / "__init__.py").is_file():
                assert f"`{room.name}/`" in text, f"{room} is missing in docs/architecture.md"
    for sub in (ROOTS[0] / "judge").iterdir():
        if (sub / "__init__.py").is_file():
            assert f"`judge/{sub.name}/`" in text, f"{sub} is missing in docs/architecture.md"


def test_the_architecture_puts_files_where_they_are():
    room, seen = None, 0
    for line in (ROOT / "docs" / "architecture.md").read_text().splitlines():
        if named := re.match(r"(?:\*\*|\| )`([\w/]+)/`", line):
            room = next((r / named[1] for r in ROOTS if (r / named[1]).is_dir()), room)
        elif line.startswith("#"):
            room = None
        for file in re.findall(r"`(\w+\.py)`", line) if room else ():
            assert any(room.rglob(file)), f"{file} is not in {room}"
            seen += 1
    assert seen > 80


def test_the_picture_is_what_the_command_prints():
    drawn = html.unescape("".join(re.findall(r"<text[^>]*>([^<]*)</text>", PICTURE.read_text())))
    expected = f"beamsearch$ {COMMAND}{output()}"
    assert "".join(drawn.split()) == "".join(expected.split()), "python tools/picture.py draws it"


def test_the_readme_is_one_tour():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 200
