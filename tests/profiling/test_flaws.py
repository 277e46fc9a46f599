"""Planted flaws are named, with their line: by the counters, and by the compiler where it can."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_profiling.findings.findings import find
from kernel_profiling.gpus import find_gpu
from kernel_profiling.ncu.report import read_report
from kernel_profiling.ncu.run import profile_command
from kernel_profiling.profile import Finding, FindingKind, Profile
from tests.profiling import planted
from tools.compiled import compiled

# What one launch hides from a compiler: where lanes meet, what they wait for, what others do.
COMPILER_SEES = [
    "division_per_element",
    "eight_blocks",
    "narrow_loads",
    "one_address",
    "product_without_dot",
    "spilled_rows",
]
SINGLE = [name for name in planted.NAMES if name != "split_k"]


def assert_named(name: str, findings: list[Finding]) -> None:
    """The finding that leads is of the flaw's kind, and one of its first two lines the marked."""
    line = planted.marked_line(name)
    told = [(f.kind.value, round(f.gain_bound, 2), f.lines, f.title) for f in findings]
    assert findings, "nothing was found"
    assert findings[0].kind == planted.load(name).FLAW, told
    assert line is None or line in findings[0].lines[:2], told


def findings_of(name: str, profile: Profile) -> list[Finding]:
    return find(profile, planted.floor_of(planted.load(name)), None)


@pytest.mark.parametrize("name", SINGLE)
def test_counters_name_the_flaw(name: str, tmp_path: Path) -> None:
    assert_named(name, findings_of(name, read_report(planted.report(name, tmp_path))))


@pytest.mark.parametrize("name", COMPILER_SEES)
def test_the_compiler_names_what_it_can_see(name: str) -> None:
    module = planted.load(name)
    inputs = planted.arguments(module)
    profile = compiled(lambda: module.kernel_function(*inputs), find_gpu("h200"))
    assert_named(name, findings_of(name, profile))


@pytest.mark.gpu
@pytest.mark.parametrize("name", SINGLE)
def test_a_fresh_profile_names_the_flaw(name: str) -> None:
    command = [
        sys.executable,
        str(planted.FOLDER / "call.py"),
        str(planted.FOLDER / f"{name}.py"),
    ]
    assert_named(name, findings_of(name, profile_command(command)))


def test_a_split_product_shows_both_kernels(tmp_path: Path) -> None:
    profile = read_report(planted.report("split_k", tmp_path))

    first, second = profile.launches
    assert (first.name, second.name) == ("partial_kernel", "add_kernel")
    assert first.triton and second.triton
    assert first.share is not None and second.share is not None
    assert first.share > 0.7 and first.share + second.share == pytest.approx(1)
    many = next(f for f in findings_of("split_k", profile) if f.kind == FindingKind.MANY_LAUNCHES)
    assert many.gain_bound == pytest.approx(1 / first.share, rel=1e-3)


def test_a_library_product_is_told_from_the_kernel_behind_it(tmp_path: Path) -> None:
    library, own = read_report(planted.report("library_product", tmp_path)).launches

    assert not library.triton and own.triton
    assert own.name == "relu_kernel"
    assert library.share is not None and library.share > 0.8


@pytest.mark.parametrize(
    ("name", "flops"), [("split_k", 2 * 64 * 64 * 2**18), ("library_product", 2 * 4096**3)]
)
def test_products_are_counted_by_instruction(name: str, flops: int, tmp_path: Path) -> None:
    profile = read_report(planted.report(name, tmp_path))
    done = [launch.metrics["matrix_flops"] for launch in profile.launches]
    assert done == [flops, 0]


@pytest.mark.parametrize("name", planted.NAMES)
def test_reading_and_ranking_is_quick(name: str, tmp_path: Path) -> None:
    path = planted.report(name, tmp_path)
    floor = planted.floor_of(planted.load(name))
    start = time.process_time()
    find(read_report(path), floor, None)
    assert time.process_time() - start < 1.5


def test_profiling_stands_on_its_own() -> None:
    program = (
        "import sys, pkgutil, importlib, profiling\n"
        "for module in pkgutil.iter_modules(profiling.__path__):\n"
        "    importlib.import_module('profiling.' + module.name)\n"
        "sys.exit('beamsearch' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, cwd=planted.FOLDER.parents[2])
