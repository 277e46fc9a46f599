"""The autotuners of a kernel that is written with what was timed."""

import runpy
from pathlib import Path

import pytest

from beamsearch.problem.pinned import pinned

KERNEL = """
import triton
import triton.language as tl

CONFIGS = [triton.Config({"BLOCK": size}) for size in (64, 128, 256)]


def body(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, BLOCK)


def other(x_ptr, BLOCK: tl.constexpr):
    tl.store(x_ptr, -BLOCK)


untouched = triton.autotune(CONFIGS, key=[])(triton.jit(other))
"""
WAYS = {
    "its own name": """
kernel = triton.jit(body)
body = tuned = triton.autotune(CONFIGS, key=[])(kernel)
""",
    "another name": """
kernel = triton.jit(body)
tuned = triton.autotune(CONFIGS, key=[])(kernel)
body = kernel
""",
    "within heuristics": """
inner = triton.autotune(CONFIGS, key=[])(triton.jit(body))
tuned = triton.heuristics({"N": lambda _: 1})(inner)
""",
    "heuristics within it": """
tuned = triton.autotune(CONFIGS, key=[])(triton.heuristics({"N": lambda _: 1})(triton.jit(body)))
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_a_kernel_has_the_configuration_that_was_timed(tmp_path: Path, way: str) -> None:
    source = KERNEL + WAYS[way]
    (tmp_path / "plain.py").write_text(source)
    configs = runpy.run_path(str(tmp_path / "plain.py"))["CONFIGS"]
    (tmp_path / "kernel.py").write_text(pinned(source, {"body": str(configs[1])}))
    made = runpy.run_path(str(tmp_path / "kernel.py"))
    tuner = made["tuned"] if hasattr(made["tuned"], "configs") else made["tuned"].fn
    assert [config.kwargs for config in tuner.configs] == [{"BLOCK": 128}]
    assert len(made["untouched"].configs) == 3


def test_it_is_found_where_another_triton_has_more_options(tmp_path: Path) -> None:
    said = "BLOCK: 128, num_warps: 4, num_ctas: 1, num_stages: 3, of_another: None"
    (tmp_path / "kernel.py").write_text(pinned(KERNEL, {"other": said}))
    (config,) = runpy.run_path(str(tmp_path / "kernel.py"))["untouched"].configs
    assert config.kwargs == {"BLOCK": 128}


@pytest.mark.parametrize("source", ["tuned = None\n", KERNEL])
def test_a_function_or_a_configuration_that_is_not_there_is_no_error(
    tmp_path: Path, source: str
) -> None:
    configs = {"body": "BLOCK: 128", "other": "BLOCK: 999"}
    (tmp_path / "kernel.py").write_text(pinned(source, configs))
    made = runpy.run_path(str(tmp_path / "kernel.py"))
    assert "untouched" not in made or len(made["untouched"].configs) == 3


def test_without_autotuners_nothing_is_added() -> None:
    assert pinned("x = 1\n\n", {}) == "x = 1\n"
