"""A plan that reaches outside its memory cannot be built, whoever wrote it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from beamsearch.records.plan import MOST_CONSTANT_BYTES, MOST_STEPS, Plan


def view(buffer: int, size: int = 4, **changes: Any) -> dict[str, Any]:
    usual = {"buffer": buffer, "dtype": "float32", "offset": 0, "size": (size,), "stride": (1,)}
    return usual | changes


def place(buffer: int, offset: int = 0) -> dict[str, Any]:
    return {"buffer": buffer, "offset": offset}


def number(kind: str = "i32", value: float = 4) -> dict[str, Any]:
    return {"type": kind, "value": value}


def descriptor(**base: Any) -> dict[str, Any]:
    made = {"shape": (4,), "strides": (1,), "block_shape": (4,), "type": "tensordesc<fp32[4]>"}
    return {"base": place(0) | base, "dtype": "float32", **made}


def launch(**changes: Any) -> dict[str, Any]:
    arguments = [place(0), place(1), number(), descriptor()]
    return {"step": "launch", "kernel": 0, "grid": (1, 1, 1), "arguments": arguments} | changes


def argument(index: int, value: Any) -> dict[str, Any]:
    told = launch()
    told["arguments"][index] = value
    return told


def fill(target: dict[str, Any]) -> dict[str, Any]:
    return {"step": "fill", "target": target, "value": 0.0}


def operation(*arguments: Any, target: Any = None, **named: Any) -> dict[str, Any]:
    told = {"name": "aten.add.Tensor", "arguments": list(arguments), "named": named}
    return {"step": "operation", **told, "targets": [target or view(1)]}


def copy(source: dict[str, Any], target: dict[str, Any]) -> dict[str, Any]:
    return {"step": "copy", "source": source, "target": target}


def zeros(size: int) -> bytes:
    return base64.b64encode(bytes(size))


GIVEN, MADE, KEPT, CONSTANT = (
    {"role": "given", "bytes": 16, "given": 0},
    {"role": "made", "bytes": 16},
    {"role": "kept", "bytes": 16, "fills": [fill(view(2))]},
    {"role": "constant", "bytes": 16, "data": zeros(16)},
)


def plan(**changes: Any) -> Plan:
    """Buffers: 0 given, 1 made, 2 kept, 3 constant, of four float32 each."""
    signature = ["*fp32", "*fp32", "i32", "tensordesc<fp32[4]>"]
    usual: dict[str, Any] = {
        "capability": 90,
        "triton": "3.6.0",
        "kernels": [{"name": "k", "ttir": "", "options": {}, "signature": signature}],
        "buffers": [GIVEN, MADE, KEPT, CONSTANT],
        "steps": [launch(), copy(view(3), view(2)), operation(view(0), view(3), alpha=view(2))],
        "results": [view(1)],
    }
    return Plan.model_validate(usual | changes)


def test_what_stays_inside_is_built_and_comes_back_from_its_text() -> None:
    edges = [view(1, 1, offset=3), view(1, 0, offset=4), view(1, 2, stride=(3,))]
    built = plan(results=edges, steps=[argument(0, place(0, 16))])
    assert Plan.model_validate_json(built.model_dump_json()) == built
    assert plan(steps=[launch(grid=(2**31 - 1, 65535, 65535))]).launches
    assert plan().results[0].end == 16


OUTSIDE: dict[str, dict[str, Any]] = {
    "a result too long": {"results": [view(1, 5)]},
    "a result too far on": {"results": [view(1, offset=1)]},
    "a result with too wide a stride": {"results": [view(1, 2, stride=(4,))]},
    "a wider type": {"results": [view(1, dtype="float64")]},
    "a result of no elements behind the end": {"results": [view(1, 0, offset=5)]},
    "a result in no buffer": {"results": [view(4)]},
    "a fill": {"steps": [fill(view(1, 5))]},
    "a copy from outside": {"steps": [copy(view(0, 5), view(1))]},
    "a copy to outside": {"steps": [copy(view(0), view(1, offset=1))]},
    "what an operation reads": {"steps": [operation(view(0, 5), 1)]},
    "what it reads in a list": {"steps": [operation([view(0), view(3, 5)])]},
    "what it reads by name": {"steps": [operation(1, other=view(0, 5))]},
    "what it writes": {"steps": [operation(1, target=view(1, 5))]},
    "a fill of what is kept": {
        "buffers": [GIVEN, MADE, KEPT | {"fills": [fill(view(2, 5))]}, CONSTANT]
    },
}


@pytest.mark.parametrize("name", OUTSIDE)
def test_a_view_outside_its_buffer_is_no_plan(name: str) -> None:
    with pytest.raises(ValidationError, match=r"reaches outside buffer|no buffer 4"):
        plan(**OUTSIDE[name])


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "address behind the end": ({"steps": [argument(0, place(0, 17))]}, "an address outside"),
    "address before the beginning": ({"steps": [argument(0, place(0, -1))]}, "greater than"),
    "address in no buffer": ({"steps": [argument(0, place(4))]}, "no buffer 4"),
    "descriptor behind the end": ({"steps": [argument(3, descriptor(offset=17))]}, "outside"),
    "descriptor in no buffer": ({"steps": [argument(3, descriptor(buffer=4))]}, "no buffer 4"),
    "number for an address": ({"steps": [argument(0, number("*fp32"))]}, "a number"),
    "number of another type": ({"steps": [argument(2, number("i64"))]}, "a number i64"),
    "number for a descriptor": (
        {"steps": [argument(3, number("tensordesc<fp32[4]>"))]},
        "a number",
    ),
    "address for a number": ({"steps": [argument(2, place(0))]}, "an address for"),
    "address for a descriptor": ({"steps": [argument(3, place(0))]}, "an address for"),
    "descriptor for an address": ({"steps": [argument(0, descriptor())]}, "an address for"),
    "too few arguments": ({"steps": [launch(arguments=[])]}, "0 arguments for 4"),
    "no such kernel": ({"steps": [launch(kernel=1)]}, "no kernel 1"),
    "grid too wide": ({"steps": [launch(grid=(2**31, 1, 1))]}, "exceeds"),
    "grid too high": ({"steps": [launch(grid=(1, 65536, 1))]}, "exceeds"),
    "grid below nothing": ({"steps": [launch(grid=(-1, 1, 1))]}, "greater than"),
    "too many steps": ({"steps": [fill(view(1))] * (MOST_STEPS + 1)}, "at most"),
    "result that is kept": ({"results": [view(2)]}, "kept between calls"),
    "result that is a constant": ({"results": [view(3)]}, "kept between calls"),
    "fill of a constant": ({"steps": [fill(view(3))]}, "a constant is written to"),
    "copy to a constant": ({"steps": [copy(view(0), view(3))]}, "a constant is written to"),
    "operation on a constant": ({"steps": [operation(1, target=view(3))]}, "is written to"),
    "fills of another's": (
        {"buffers": [GIVEN, MADE, KEPT | {"fills": [fill(view(1))]}, CONSTANT]},
        "not its own",
    ),
    "fills of what is made": (
        {"buffers": [GIVEN, MADE | {"fills": [fill(view(1))]}, KEPT, CONSTANT]},
        "not its own",
    ),
    "argument without a number": (
        {"buffers": [GIVEN | {"given": None}, MADE, KEPT, CONSTANT]},
        "is given and names None",
    ),
    "made buffer with a number": (
        {"buffers": [GIVEN, MADE | {"given": 1}, KEPT, CONSTANT]},
        "is made and names 1",
    ),
    "constant of other bytes": (
        {"buffers": [GIVEN, MADE, KEPT, CONSTANT | {"data": zeros(17)}]},
        "other bytes than its data",
    ),
    "constant of nothing": (
        {"buffers": [GIVEN, MADE, KEPT, CONSTANT | {"data": None}]},
        "a constant without data",
    ),
    "constants too large": (
        {
            "buffers": [
                *(GIVEN, MADE, KEPT, CONSTANT),
                CONSTANT | {"bytes": MOST_CONSTANT_BYTES, "data": zeros(MOST_CONSTANT_BYTES)},
            ]
        },
        "bytes of constants",
    ),
    "no such type": ({"results": [view(1, dtype="complex64")]}, "no tensor"),
    "sizes without strides": ({"results": [view(1, stride=())]}, "no tensor"),
    "backwards": ({"results": [view(1, offset=3, stride=(-1,))]}, "greater than"),
    "before the beginning": ({"results": [view(1, offset=-1)]}, "greater than"),
    "a field of its own": ({"code": "print()"}, "Extra inputs"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_does_not_fit_is_no_plan(name: str) -> None:
    changes, reason = REFUSED[name]
    with pytest.raises(ValidationError, match=reason):
        plan(**changes)
