"""The planted flaws as the tests see them: module, floor, and the line that must be named."""

from __future__ import annotations

import importlib.util
import lzma
from pathlib import Path
from types import ModuleType

import torch
from torch.utils.flop_counter import FlopCounterMode

from kernel_profiling.floor.roofline import make_floor
from kernel_profiling.gpus import find_gpu
from kernel_profiling.profile import Floor

FOLDER = Path(__file__).parent / "flaws"
REPORTS = Path(__file__).parents[1] / "data/flaws"
"""What Nsight Compute reported of each on an H200, compressed."""
NAMES = sorted(path.stem for path in FOLDER.glob("*.py") if path.stem not in ("__init__", "call"))


def load(name: str) -> ModuleType:
    """The module of a flaw."""
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def marked_line(name: str) -> int | None:
    """The line with the flaw, where it has one."""
    lines = (FOLDER / f"{name}.py").read_text().splitlines()
    return next((n for n, text in enumerate(lines, 1) if "# flaw" in text), None)


def floor_of(module: ModuleType) -> Floor:
    """The floor on an H200 as its datasheet has it; what is read and written once, and FLOPs."""
    inputs = module.make_inputs("meta")
    with FlopCounterMode(display=False) as counter:
        output = module.reference(*inputs)
    return make_floor(
        bytes_read=sum(x.numel() * x.element_size() for x in inputs),
        bytes_written=output.numel() * output.element_size(),
        flops=counter.get_total_flops(),
        dtype=str(inputs[0].dtype).removeprefix("torch."),
        gpu=find_gpu("NVIDIA H200"),
        ceilings=None,
    )


def report(name: str, folder: Path) -> Path:
    """The committed report, unpacked into a folder."""
    path = folder / f"{name}.ncu-rep"
    path.write_bytes(lzma.decompress((REPORTS / f"{name}.ncu-rep.xz").read_bytes()))
    return path


def arguments(module: ModuleType) -> tuple[torch.Tensor, ...]:
    """Inputs without memory."""
    return tuple(module.make_inputs("meta"))
