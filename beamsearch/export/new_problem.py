"""A problem made of a user's module or function: its file imports the code, and copies none."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from beamsearch.errors import ProblemError, UsageError
from beamsearch.export.init_argument import InitArgument, parse_init
from beamsearch.export.input_spec import FLOATS, InputSpec, Sizes, drawing, parse_input
from beamsearch.export.model_source import ModelSource, model_source
from beamsearch.export.origin import Origin, find_origin
from beamsearch.problem.instance import instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem, load_module
from beamsearch.problem.shrink import shrink
from kernel_profiling.errors import one_line

IMPORTED = (
    "Made by `python -m beamsearch new`. It imports that code, which must stay where it is, and\n"
    "follows every change of it."
)
COPIED = "Made by `Problem.from_module`, with a copy of that code."


@dataclass(frozen=True)
class Made:
    """A problem's file before it is written, and what was seen of it."""

    problem: Problem
    small: Problem | None
    """The shrunk problem that ran on the CPU."""
    not_shrunk: str = ""
    """Why there is none."""


def snake_case(name: str) -> str:
    """`LlamaMLP` as `llama_mlp`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def make_problem(
    where: str | Origin,
    inputs: Sequence[str],
    init: Sequence[str],
    path: Path,
    *,
    dtype: str | None = None,
    evaluated: bool = False,
) -> Made:
    """The problem of a class, a function, a module that is built, or what builds one, for `path`;
    nothing is written. It has run on shapes alone and, shrunk, on the CPU.

    `evaluated`: `self.eval()` at the end of `__init__`. Raises UsageError, ProblemError.
    """
    if not inputs:
        raise UsageError('say what forward takes: --input "x: bf16[8,2048,4096]"')
    specs = [parse_input(text) for text in inputs]
    names = [spec.name for spec in specs]
    if len(set(names)) < len(names):
        raise UsageError(f"--input names {max(names, key=names.count)} twice")
    origin = where if isinstance(where, Origin) else find_origin(where)
    sizes = Sizes(specs)
    arguments = [parse_init(text, origin, sizes) for text in init]
    parts = model_source(origin, specs, arguments, evaluated=evaluated)
    chosen = dtype or _stated(specs) or parts.dtype or "float32"
    source = _file(origin, specs, sizes, arguments, parts, chosen)
    problem = Problem(path.parent.name, path, source, "float32").with_dtype(chosen)
    return checked(problem, origin)


def _stated(specs: Sequence[InputSpec]) -> str | None:
    found = {spec.dtype for spec in specs if spec.dtype in FLOATS}
    if len(found) > 1:
        raise UsageError(
            f"inputs in {' and '.join(sorted(map(str, found)))}: a problem has one floating-point "
            "type for all inputs and parameters; choose it with --dtype"
        )
    return next(iter(found), None)


def _file(
    origin: Origin,
    specs: Sequence[InputSpec],
    sizes: Sizes,
    init: Sequence[InitArgument],
    parts: ModelSource,
    dtype: str,
) -> str:
    """The whole of `problem.py`."""
    modules = {"torch", *(name for one in init for name in one.imports)}
    modules |= {"copy"} if parts.before else set()
    modules |= {"importlib.util"} if "importlib.util" in origin.imports else set()
    modules |= {"importlib"} if "importlib.import_module" in origin.imports else set()
    modules |= {"sys"} if "sys." in origin.imports else set()
    own = sorted(modules & {"copy", "importlib", "importlib.util", "sys"})
    others = sorted(modules - set(own))
    imports = "".join(f"import {name}\n" for name in own) + ("\n" if own else "")
    imports += "".join(f"import {name}\n" for name in others)
    told = "".join(f"{name} = {value}\n" for name, value in sizes.values.items())
    drawn = "".join(f"        {drawing(spec, sizes)},\n" for spec in specs)
    given = ", ".join(one.source for one in init)
    made = COPIED if origin.copied else IMPORTED
    return (
        f'"""{parts.kind.capitalize()} {origin.told} as a problem.\n\n'
        f"{made} Its sizes are the whole numbers below and in the last "
        'two functions.\n"""\n\n'
        f'{imports}\nDTYPE = "{dtype}"\n\n{told}\n{origin.imports}{parts.before}\n\n'
        f"{parts.source}\n\n"
        f"def get_inputs():\n    return [\n{drawn}    ]\n\n\n"
        f"def get_init_inputs():\n    return [{given}]\n"
    )


def checked(problem: Problem, origin: Origin) -> Made:
    """The problem, run on shapes alone and, shrunk, on the CPU. Raises ProblemError with the
    module's own message."""
    load_module(problem)
    _run(problem, "meta", origin)
    least_work(problem)
    try:
        small = shrink(problem)
    except ProblemError as error:
        return Made(problem, None, str(error))
    _run(small, "cpu", origin)
    return Made(problem, small)


def _run(problem: Problem, device: str, origin: Origin) -> None:
    from beamsearch.problem.dispatch_modes import ShapesOfRecurrence

    try:
        instance = instantiate(problem, device)
        given = dict(zip(instance.arguments.forward, instance.inputs, strict=True))
    except ProblemError as error:
        told = one_line(str(error.__cause__ or error))
        raise ProblemError(f"{origin.told} cannot be built: {told}") from error
    words = (f"{name} {tuple(getattr(value, 'shape', ()))}" for name, value in given.items())
    try:
        with ShapesOfRecurrence():  # type: ignore[no-untyped-call]
            instance.reference()
    except Exception as error:
        told = one_line(str(error))
        where = "on shapes alone" if device == "meta" else "on the CPU"
        raise ProblemError(
            f"{origin.told} fails {where} with {', '.join(words)}: {type(error).__name__}: {told}"
        ) from error
