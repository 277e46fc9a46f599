"""The wheel carries what the project needs, and works from a folder that is not the checkout."""

import json
import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout."""
    built = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "-w", str(built), str(ROOT)], check=True, timeout=200)
    (file,) = built.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def unpacked(wheel, tmp_path_factory) -> Path:
    """The wheel's content in a folder of its own."""
    folder = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
    return folder


def python(unpacked: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Python with the unpacked wheel before anything installed, in a folder elsewhere."""
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(unpacked)},
        capture_output=True,
        text=True,
        timeout=250,
    )


def test_carries_prompts_problems_and_artifacts(unpacked, tmp_path):
    # Given the unpacked wheel, when its resources are asked for from another folder
    code = (
        "import json, beamsearch; from beamsearch.paths import data_folder\n"
        "names = ('prompts', 'problems', 'artifacts')\n"
        "print(json.dumps([beamsearch.__file__, *map(str, map(data_folder, names))]))"
    )
    done = python(unpacked, tmp_path, "-c", code)

    # Then the package is the wheel's, and the checkout's files are there, byte for byte: of
    # recorded runs, the results and the kernels
    assert done.returncode == 0, done.stderr
    package, *folders = map(Path, json.loads(done.stdout))
    assert package.is_relative_to(unpacked)
    for folder in folders:
        assert folder.is_relative_to(unpacked)
        there = {p.relative_to(folder): p for p in folder.rglob("*") if p.is_file()}
        here = tracked(ROOT / folder.name)
        if folder.name == "artifacts":
            here = {name: path for name, path in here.items() if is_result(name)}
            assert set(there) == set(here)
        assert here and set(here) <= set(there)
        for name, path in here.items():
            assert there[name].read_bytes() == path.read_bytes()


def is_result(name: Path) -> bool:
    """Whether a file of a recorded run says what came of it, and not how."""
    return "optimization_trace" not in name.parts and name.name != "trace.tar.xz"


def tracked(folder: Path) -> dict[Path, Path]:
    """Files of a folder of the checkout, caches aside."""
    return {
        path.relative_to(folder): path
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_is_light(wheel):
    assert wheel.stat().st_size < 3e6


@pytest.mark.parametrize("thinker", ["claude", "playbook"])
@pytest.mark.parametrize("verb", ["show", "replay", "resume"])
def test_says_where_the_trace_of_a_recorded_run_is(unpacked, tmp_path, verb, thinker):
    (run,) = (unpacked / "beamsearch" / "_data" / "artifacts" / thinker).glob("43_*")
    before = tracked(run)
    done = python(unpacked, tmp_path, "-m", "beamsearch", verb, str(run))
    assert done.returncode == 2
    assert "trace.tar.xz is missing there" in done.stderr and "a checkout" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert tracked(run) == before and not list(tmp_path.iterdir())


def test_carries_no_tests_and_no_rubbish(unpacked):
    tops = {path.name for path in unpacked.iterdir()}
    assert {"beamsearch", "kernel_profiling"} < tops
    assert len(tops) == 3, f"besides the two packages only dist-info: {tops}"


@pytest.mark.slow(turn=5)
def test_runs_the_main_job_elsewhere(unpacked, tmp_path):
    done = python(
        unpacked,
        tmp_path,
        *("-m", "beamsearch", "run", "82", "--json", "--llm", "playbook"),
        *("--rounds", "1", "--workers", "1", "--variants", "1"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["status"] == "finished"
    (kernel,) = tmp_path.glob("runs/82_*/*/optimized_kernel_beam_search.py")
    assert not re.search(
        r"^\s*(import|from) (beamsearch|kernel_profiling)", kernel.read_text(), re.M
    )


@pytest.mark.slow(turn=5)
def test_an_example_runs_elsewhere(unpacked, tmp_path):
    done = python(unpacked, tmp_path, str(ROOT / "examples" / "05_module.py"))
    assert done.returncode == 0, done.stderr
    assert "verdict: correct, also at other shapes" in done.stdout


def test_the_standard_librarys_profiling_is_what_torch_finds_from_a_checkout(tmp_path):
    """From Python 3.15 on there is one, and a checkout has a folder of that name."""
    library = tmp_path / "library" / "profiling"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("")
    (library / "tracing.py").write_text("class Profile: pass\n")
    code = (
        "import profiling.tracing\n"
        "assert 'library' in profiling.__file__, profiling\n"
        "import beamsearch, kernel_profiling.findings.findings, torch\n"
        "double = torch.compile(lambda x: 2 * x, backend='eager')\n"
        "assert double(torch.ones(3)).sum() == 6\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(library.parent)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
