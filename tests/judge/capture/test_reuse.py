"""Machine code that is there already, taken by Triton in the place of its own."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.backends.nvidia.compiler import CUDABackend
from triton.compiler.compiler import CompiledKernel
from triton.runtime import driver
from triton.runtime.autotuner import Autotuner

from beamsearch.judge.capture.compiling import OF_COMPILATION, compile_plan
from beamsearch.judge.capture.launches import pin
from beamsearch.judge.capture.process import reuse
from kernel_profiling.compiler.fake_device import TargetDriver
from kernel_profiling.gpus import find_gpu
from tests.judge.capture.kernels import plan_of, scale
from tests.judge.capture.test_compiling import KINDS, text_of

OTHERWISE = ("pipelined product", "device descriptors", "host descriptors", "specialised warps")
"""Kinds whose launch depends on more than their code."""


@pytest.fixture(autouse=True)
def _anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is found on disk, and Triton compiles by itself again afterwards."""
    monkeypatch.setattr(CUDABackend, "add_stages", CUDABackend.add_stages)
    monkeypatch.setattr(knobs.cache, "dir", str(tmp_path))


@pytest.mark.parametrize("kind", OTHERWISE)
def test_what_was_compiled_from_the_ir_is_not_compiled_again(kind: str, tmp_path: Path) -> None:
    # Given a kernel as its Python compiles, and as the judge compiles its IR
    first = KINDS[kind]()
    plan = plan_of(first)
    binaries = compile_plan(plan, find_gpu("h200")).binaries
    # When its Python is compiled where that is known
    reuse(list(zip(plan.kernels, binaries, strict=True)))
    knobs.cache.dir = str(tmp_path / "empty")
    again = KINDS[kind]().compiled
    # Then it is the judge's machine code, and a launcher finds all that it looks for
    assert again.asm["cubin"] == binaries[0].cubin
    assert "ptx" not in again.asm
    known = first.compiled.metadata._asdict()
    assert known.keys() == again.metadata._asdict().keys()
    for name in known.keys() - set(OF_COMPILATION):
        assert getattr(again.metadata, name) == known[name], name


def test_other_options_are_compiled() -> None:
    plan = plan_of(scale())
    (known,) = compile_plan(plan, find_gpu("h200")).binaries
    reuse([(plan.kernels[0], known)])
    other = scale(num_warps=8).compiled
    assert other.metadata.num_warps == 8
    assert text_of(other.asm["cubin"]) != text_of(known.cubin)


@triton.autotune([triton.Config({"BLOCK": size}) for size in (256, 512, 1024)], key=["n"])
@triton.jit
def tuned_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + index, tl.load(x_ptr + index, mask=index < n), mask=index < n)


@pytest.mark.parametrize("size", [256, 512, 1024])
def test_an_autotuner_chooses_what_was_chosen(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Given a process without a GPU, in which nothing can be timed
    for owner, name in ((Autotuner, "prune_configs"), (Autotuner, "_bench")):
        monkeypatch.setattr(owner, name, getattr(owner, name))
    monkeypatch.setattr(driver, "_active", TargetDriver(find_gpu("h200")), raising=False)
    launched: list[tuple[int, ...]] = []
    monkeypatch.setattr(CompiledKernel, "_init_handles", lambda self: None)
    monkeypatch.setattr(CompiledKernel, "run", lambda self, *grid: launched.append(grid[:3]))
    tuned_kernel.cache.clear()
    # When the choice of the judge is pinned
    pin({"tuned_kernel": str(tuned_kernel.configs[(256, 512, 1024).index(size)])}, {})
    x = torch.empty(4096, device="meta")
    for _ in range(2):
        tuned_kernel[lambda meta: (triton.cdiv(4096, meta["BLOCK"]),)](x, torch.empty_like(x), 4096)
    # Then it is what runs
    assert launched == [(4096 // size, 1, 1)] * 2
    assert tuned_kernel.best_config.kwargs == {"BLOCK": size}
