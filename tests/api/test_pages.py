"""The Python blocks of docs/python.md and docs/extending.md, run as they stand."""

import subprocess
import sys

import pytest

from tests import PYTHONPATH, ROOT
from tests.api.process import python
from tests.documents import FENCE, read_page, write_files


def script_of(page) -> str:
    """The blocks of a page that are not files, one after the other."""
    return "\n".join(
        block["text"]
        for block in FENCE.finditer(page.text)
        if block["language"] == "python" and not block["file"]
    )


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


@pytest.mark.slow(turn=1)
def test_the_page_on_python_is_so(folder):
    pytest.importorskip("pandas", reason="pandas is not installed")
    (folder / "page.py").write_text(script_of(read_page(ROOT / "docs" / "python.md")))
    printed = python("page.py", cwd=folder)
    assert "verdict: correct, also at other shapes" in printed and "finished: " in printed


@pytest.fixture
def lab(folder):
    """The package of the page on extending, installed beside nothing else."""
    write_files(read_page(ROOT / "docs" / "extending.md"), folder)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", "site", "./lab"], cwd=folder, check=True, timeout=120)
    return folder


@pytest.mark.slow(turn=4)
def test_the_page_on_extending_is_so(lab):
    path = f"{lab / 'site'}:{PYTHONPATH}"
    (lab / "page.py").write_text(script_of(read_page(ROOT / "docs" / "extending.md")))
    python("page.py", cwd=lab, PYTHONPATH=path)

    # And the command line has them too
    words = ("-m", "beamsearch", "run", "examples/leaky_relu", "--llm", "nobody")
    with pytest.raises(AssertionError, match=r"replay:RUN, folder, or install"):
        python(*words, cwd=lab, PYTHONPATH=path)

    # And one that cannot be imported is named
    (lab / "site" / "kernel_lab" / "proposer.py").write_text("import nothing_like_this\n")
    with pytest.raises(AssertionError, match="error: kernel-lab brings folder .* uninstall"):
        python(*words, cwd=lab, PYTHONPATH=path)
