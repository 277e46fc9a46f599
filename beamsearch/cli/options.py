"""Arguments and options that several verbs take."""

from __future__ import annotations

import types
from collections.abc import Callable
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import typer

from beamsearch.settings import Settings

if TYPE_CHECKING:
    from beamsearch.problem.problem import Problem

ProblemArgument = Annotated[
    str,
    typer.Argument(
        metavar="PROBLEM",
        help="Name, number (43), unique part of a name, folder or file; level1/43 of KernelBench.",
    ),
]
KernelBenchOption = Annotated[
    Path | None,
    typer.Option("--kernelbench", metavar="DIR", help="A checkout of KernelBench, for level1/43."),
]
ScaleOption = Annotated[
    float | None,
    typer.Option(
        "--scale",
        metavar="X",
        help="Multiply the problem's largest sizes by this, so that it takes about that share of "
        "its memory, such as 0.25.",
    ),
]
RunArgument = Annotated[Path, typer.Argument(metavar="RUN", help="A run's folder.")]
JsonOption = Annotated[
    bool, typer.Option("--json", help="One JSON object on stdout; everything else on stderr.")
]
JsonLinesOption = Annotated[
    bool,
    typer.Option("--json-lines", help="One JSON object an event on stdout, while the run goes on."),
]
Verb = Callable[..., None]

METAVARS = {
    "strategy": "NAME",
    "beam": "K",
    "variants": "V",
    "seed": "S",
    "dtype": "D",
    "precision": "P",
    "target": "GPU",
    "gpus": "WHICH",
    "ray": "ADDRESS",
    "llm": "WHO",
    "model": "NAME",
    "model_choice": "HOW",
    "learn_from": "RUN",
    "max_cost": "USD",
    "time_limit_s": "T",
}
"""What stands for a value in the help, where it is not N for a whole number and X for another."""


def option(name: str, *, default: bool = True) -> Any:
    """A setting as an option of the command line: its type, its words and its default are those of
    `Settings`, which also checks the value. Without `default`, what holds is no default."""
    field = Settings.model_fields[name]
    kind = str if name in ("time_limit_s", "llm") else _kind(field.annotation)
    flag = f"--{name.removesuffix('_s').replace('_', '-')}"
    told = " ".join((field.description or "").split())
    if default and field.default and "Default" not in told:
        told = f"{told} Default: {field.default}."
    if kind is bool:
        return Annotated[bool | None, typer.Option(flag, help=told)]
    metavar = METAVARS.get(name, "X" if kind is float else "N")
    return Annotated[kind | None, typer.Option(flag, metavar=metavar, help=told)]


def _kind(annotation: Any) -> Any:
    """The type of one given value: `list[str]` where there may be several."""
    if get_origin(annotation) in (Union, types.UnionType):
        return _kind(next(part for part in get_args(annotation) if part is not type(None)))
    if get_origin(annotation) is tuple:
        return list[str]
    return str if get_origin(annotation) is Literal else annotation


DtypeOption = option("dtype")
PrecisionOption = option("precision")
BackwardOption = option("backward")
TargetOption = option("target")
DeviceOption = option("device")
RayOption = option("ray")
SeedOption = option("seed")
StrictNanOption = option("strict_nan")


def asked_problem(
    name: str,
    kernelbench: Path | None,
    scale: float | None,
    dtype: str | None,
    precision: str | None,
    backward: bool | None,
    *,
    json: bool,
) -> Problem:
    """The problem as the options ask for it; where it is scaled, a line says to what. Raises
    ProblemError."""
    from beamsearch.problem.problem import find_problem
    from beamsearch.problem.scale import at_scale

    found = at_scale(find_problem(name, kernelbench), scale)
    if found.scaled:
        typer.echo(f"{found.name} scaled to {found.scaled}", err=json)
    return found.with_dtype(dtype).with_precision(precision).with_backward(backward)


def takes_settings(
    *names: str, defaults: bool = True
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb these settings as options; it gets those that were given as `flags`, by name."""

    def decorate(verb: Verb) -> Verb:
        @wraps(verb)
        def wrapper(**given: Any) -> None:
            flags = {name: given.pop(name) for name in names}
            verb(**given, flags={n: v for n, v in flags.items() if v is not None and v != []})

        hints = get_type_hints(verb, include_extras=True)
        own = signature(verb)
        added = [
            Parameter(
                name,
                Parameter.KEYWORD_ONLY,
                default=None,
                annotation=option(name, default=defaults),
            )
            for name in names
        ]
        kept = [
            parameter.replace(annotation=hints[name])
            for name, parameter in own.parameters.items()
            if name != "flags"
        ]
        first = [p for p in kept if p.kind is not Parameter.KEYWORD_ONLY]
        last = [p for p in kept if p.kind is Parameter.KEYWORD_ONLY]
        parameters = [*first, *added, *last]
        wrapper.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {p.name: p.annotation for p in parameters} | {"return": None}
        del wrapper.__wrapped__
        return wrapper

    return decorate
