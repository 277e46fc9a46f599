"""The examples and the notebook, as a reader runs them."""

import os
import shutil

import pytest

from tests import PYTHONPATH, ROOT
from tests.api.process import python

EXAMPLES = ROOT / "examples"
SCRIPTS = sorted(EXAMPLES.glob("[0-9]*.py"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Where one script leaves what the next one reads."""
    return tmp_path_factory.mktemp("reader")


@pytest.mark.slow(turn=2)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_every_script_runs_in_any_folder(script, folder):
    pytest.importorskip("pandas", reason="pandas is not installed")
    if script.name.startswith("04") and not (folder / "runs").exists():
        python(EXAMPLES / "03_search.py", cwd=folder)
    printed = python(script, cwd=folder)
    expected = {
        "01_verify.py": "verdict: correct, also at other shapes",
        "02_profile.py": "x the floor",
        "03_search.py": "def kernel_function(",
        "04_read_a_run.py": "leaky_relu: finished",
        "05_module.py": "verdict: correct, also at other shapes",
    }
    assert expected[script.name] in printed


@pytest.mark.slow(turn=0)
def test_the_notebook_runs_and_holds_no_outputs(tmp_path, monkeypatch):
    nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
    pytest.importorskip("ipykernel", reason="ipykernel is not installed")
    pytest.importorskip("pandas", reason="pandas is not installed")
    import nbformat

    notebook = nbformat.read(EXAMPLES / "tour.ipynb", as_version=4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert not any(cell.outputs or cell.execution_count for cell in cells)
    shutil.copytree(EXAMPLES / "leaky_relu", tmp_path / "leaky_relu")
    env = os.environ | {"PYTHONPATH": PYTHONPATH, "XDG_CACHE_HOME": str(tmp_path / "cache")}
    client = nbclient.NotebookClient(
        notebook, timeout=280, resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute(env=env)
    pages = [
        output.data["text/html"]
        for cell in cells
        for output in cell.outputs
        if "text/html" in output.get("data", {})
    ]
    assert len(pages) == 5  # a verdict, a profile, a run, a table, a verdict
    assert "correct" in pages[0] and "x the floor" in pages[1] and "finished" in pages[2]
    said = "".join(o.text for cell in cells for o in cell.outputs if o.output_type == "stream")
    assert "r1-w0-v0 is " in said
