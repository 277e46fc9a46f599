"""What makes two plans one, and what does not."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import triton
import triton.language as tl

from beamsearch.judge.capture.compiling import compile_plan
from beamsearch.records.plan import (
    Buffer,
    Copy,
    Fill,
    Launch,
    Number,
    Operation,
    Plan,
    Pointer,
    View,
)
from kernel_profiling.gpus import find_gpu
from tests.judge.capture import kernels
from tests.judge.capture.kernels import N, scale


@triton.jit
def renamed(first, second, count, by, BLOCK: tl.constexpr):
    # The same work under other names, on other lines.
    where = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(first + where, mask=where < count)
    tl.store(second + where, values * by, mask=where < count)


def view(buffer: int, size: int = N, offset: int = 0, dtype: str = "float32") -> View:
    return View(buffer=buffer, dtype=dtype, offset=offset, size=(size,), stride=(1,))


def launch(*buffers: int, **changes: Any) -> Launch:
    usual = {
        "kernel": 0,
        "grid": (1024, 1, 1),
        "arguments": [
            *(Pointer(buffer=number, offset=0) for number in buffers),
            Number(type="i32", value=N),
            Number(type="fp32", value=2.0),
        ],
    }
    return Launch(**{**usual, **changes})


def plan(
    numbers: tuple[int, int, int, int, int] = (0, 1, 2, 3, 4),
    kernel: Any = None,
    line: int | None = 10,
) -> Plan:
    """Scale what is given into a workspace, add a constant to a part of it, keep the sum."""
    given, work, out, table, kept = numbers
    buffers: dict[int, Buffer] = {
        given: Buffer(role="given", given=0, bytes=4 * N),
        work: Buffer(role="made", bytes=4 * N),
        out: Buffer(role="made", bytes=4 * N),
        table: Buffer(role="constant", bytes=8, data=b"AAAAAAAAAAA="),
        kept: Buffer(role="kept", bytes=8, fills=[Fill(target=view(kept, 2), value=1.0)]),
    }
    return Plan(
        capability=90,
        triton=triton.__version__,
        kernels=[kernel or scale().kernel],
        buffers=[buffers[number] for number in sorted(buffers)],
        steps=[
            launch(given, work, line=line, named={"x_ptr": "words"}),
            Fill(target=view(out), value=0.0),
            Copy(target=view(out, 64, 64), source=view(work, 64, 128)),
            Operation(
                name="aten.add.Tensor",
                arguments=[view(table, 2), view(kept, 2)],
                named={"alpha": 1},
                targets=[view(kept, 2)],
                line=line,
            ),
        ],
        results=[view(out)],
    )


def fingerprint(told: Plan) -> str:
    found = compile_plan(Plan.model_validate_json(told.model_dump_json()), find_gpu("h200"))
    assert found.profile.fingerprint is not None
    return found.profile.fingerprint


@functools.cache
def usual() -> str:
    return fingerprint(plan())


def changed(**fields: Any) -> Plan:
    return plan().model_copy(update=fields)


def step(index: int, **fields: Any) -> Plan:
    steps = list(plan().steps)
    steps[index] = steps[index].model_copy(update=fields)
    return changed(steps=steps)


def buffer(index: int, **fields: Any) -> Plan:
    buffers = list(plan().buffers)
    buffers[index] = Buffer.model_validate({**buffers[index].model_dump(), **fields})
    return changed(buffers=buffers)


def moved_source() -> Plan:
    kernel = scale().kernel
    ttir = kernel.ttir.replace(kernels.__file__, "/elsewhere/kernel.py")
    assert ttir != kernel.ttir
    return plan(kernel=kernel.model_copy(update={"ttir": ttir, "source_file": "/elsewhere.py"}))


SAME: dict[str, Callable[[], Plan]] = {
    "buffers numbered otherwise": lambda: plan((3, 0, 4, 1, 2)),
    "other names": lambda: plan(kernel=scale(function=renamed).kernel),
    "another place of the source": moved_source,
    "other lines": lambda: plan(line=99),
    "other words for people": lambda: step(0, named={}, config="BLOCK: 1024"),
    "a buffer that is never used": lambda: changed(
        buffers=[*plan().buffers, Buffer(role="made", bytes=64)]
    ),
}

SCALAR = [*launch(0, 1).arguments[:3], Number(type="fp32", value=2.5)]
SHIFTED = [Pointer(buffer=0, offset=4), *launch(0, 1).arguments[1:]]

OTHER: dict[str, Callable[[], Plan]] = {
    "another grid": lambda: step(0, grid=(1023, 1, 1)),
    "another scalar": lambda: step(0, arguments=SCALAR),
    "another address": lambda: step(0, arguments=SHIFTED),
    "arguments in another order": lambda: step(0, arguments=launch(1, 0).arguments),
    "other warps": lambda: plan(kernel=scale(num_warps=8).kernel),
    "another block": lambda: plan(kernel=scale(2048).kernel),
    "launched dependent": lambda: plan(kernel=scale(launch_pdl=True).kernel),
    "launched twice": lambda: changed(steps=[plan().steps[0], *plan().steps]),
    "another part copied": lambda: step(2, source=view(1, 64, 192)),
    "copied elsewhere": lambda: step(2, target=view(2, 64, 0)),
    "another dtype": lambda: step(2, source=view(1, 64, 128, "int32")),
    "another fill": lambda: step(1, value=1.0),
    "another operation": lambda: step(3, name="aten.sub.Tensor"),
    "another number for it": lambda: step(3, named={"alpha": 2}),
    "another order": lambda: changed(steps=[plan().steps[i] for i in (1, 0, 2, 3)]),
    "another result": lambda: changed(results=[view(1)]),
    "results in a tuple": lambda: changed(container="tuple"),
    "another constant": lambda: buffer(3, data=b"AAAAAAAAAAE="),
    "another start of what is kept": lambda: buffer(
        4, fills=[{"target": view(4, 2).model_dump(), "value": 2.0}]
    ),
    "another argument": lambda: buffer(0, given=1),
    "a smaller buffer": lambda: buffer(1, bytes=4 * N - 4),
}


@pytest.mark.parametrize("change", SAME)
def test_one_plan(change: str) -> None:
    assert fingerprint(SAME[change]()) == usual()


@pytest.mark.parametrize("change", OTHER)
def test_another_plan(change: str) -> None:
    assert fingerprint(OTHER[change]()) != usual()


def test_a_profile_names_operations_and_choices(tmp_path: Path) -> None:
    profile = compile_plan(step(0, config="BLOCK: 1024"), find_gpu("h200")).profile
    assert (profile.source, profile.gpu) == ("compiler", "H200 SXM")
    assert profile.torch_operations == ["add"]
    assert [(one.name, one.config, one.grid) for one in profile.launches] == [
        ("scale_kernel", "BLOCK: 1024", (1024, 1, 1))
    ]
