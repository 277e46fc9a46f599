"""A problem made of a user's module or function: its file imports the code, and copies none."""

from __future__ import annotations

import inspect
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.errors import ProblemError, UsageError
from beamsearch.export.init_argument import InitArgument, parse_init
from beamsearch.export.input_spec import FLOATS, InputSpec, Sizes, drawing, parse_input
from beamsearch.export.origin import Origin, find_origin, parameters_of
from beamsearch.problem.instance import instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem, load_module
from beamsearch.problem.shrink import shrink
from kernel_profiling.errors import one_line

if TYPE_CHECKING:
    import torch

DRAWN = '''class Model(type(built)):
    """A copy of it, with its own shapes and settings; its parameters are drawn anew, with the mean
    and the spread that they had. Buffers are as they are."""

    def __init__(self):
        torch.nn.Module.__init__(self)
        self.__dict__.update(copy.deepcopy(built.__dict__))
        drawn = {{}}
        for name, parameter in self.named_parameters():
            mean, spread = WEIGHTS.get(name, (0.0, 1.0))
            if parameter.is_floating_point():
                values = torch.randn(parameter.shape) * spread + mean
                drawn[id(parameter)] = torch.nn.Parameter(values)
        for part in self.modules():
            for name, parameter in part._parameters.items():
                part._parameters[name] = drawn.get(id(parameter), parameter)
{eval}
'''
"""The model of a module that is built already."""


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
    where: str,
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
    origin = find_origin(where)
    sizes = Sizes(specs)
    arguments = [parse_init(text, origin, sizes) for text in init]
    parts = _model(origin, specs, arguments, "        self.eval()" if evaluated else "")
    chosen = dtype or _stated(specs) or parts.dtype or "float32"
    source = _file(origin, specs, sizes, arguments, parts, chosen)
    problem = Problem(path.parent.name, path, source, "float32").with_dtype(chosen)
    return checked(problem, origin)


@dataclass(frozen=True)
class _Model:
    """Source of the model, and what goes with it."""

    kind: str
    source: str
    before: str = ""
    dtype: str | None = None


def _stated(specs: Sequence[InputSpec]) -> str | None:
    found = {spec.dtype for spec in specs if spec.dtype in FLOATS}
    if len(found) > 1:
        raise UsageError(
            f"inputs in {' and '.join(sorted(map(str, found)))}: a problem has one floating-point "
            "type for all inputs and parameters; choose it with --dtype"
        )
    return next(iter(found), None)


def _model(
    origin: Origin, specs: Sequence[InputSpec], init: Sequence[InitArgument], evaluate: str
) -> _Model:
    import torch

    target = origin.target
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        call = _forward(origin, target.forward, specs)
        return _Model("the class", _class(origin, init, evaluate) + "\n" + call)
    if init:
        raise UsageError(f"{origin.told} is no class of a module, and takes no --init")
    if isinstance(target, torch.nn.Module):
        return _built(origin, target, "the module", f"source.{origin.attribute}", specs, evaluate)
    if not callable(target):
        raise UsageError(f"{origin.told} is a {type(target).__name__}: no module and no function")
    if parameters_of(target) == {}:
        made = _called(origin, target)
        before = (
            f'if not hasattr(source, "built_{origin.attribute}"):\n'
            f"    source.built_{origin.attribute} = source.{origin.attribute}()\n"
        ).replace(f"built_{origin.attribute}", "built_" + origin.attribute.replace(".", "_"))
        name = "source.built_" + origin.attribute.replace(".", "_")
        return _built(origin, made, "the module from", name, specs, evaluate, before)
    call = _forward(origin, target, specs, f"source.{origin.attribute}")
    return _Model("the function", f"class Model(torch.nn.Module):\n{call}")


def _called(origin: Origin, target: Any) -> torch.nn.Module:
    import torch

    try:
        made = target()
    except Exception as error:
        raise UsageError(f"{origin.told}() fails: {type(error).__name__}: {error}") from error
    if not isinstance(made, torch.nn.Module):
        raise UsageError(f"{origin.told}() gives a {type(made).__name__}, and no torch.nn.Module")
    return made


def _built(
    origin: Origin,
    module: torch.nn.Module,
    kind: str,
    name: str,
    specs: Sequence[InputSpec],
    evaluate: str,
    before: str = "",
) -> _Model:
    import torch

    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        raise UsageError(f"{origin.told} is compiled; name the module that it was made of")
    floating = {n: p for n, p in module.named_parameters() if p.is_floating_point()}
    rows = []
    for key, parameter in floating.items():
        spread, mean = torch.std_mean(parameter.detach().double(), correction=0)
        rows.append(f'    "{key}": ({float(mean):.4g}, {float(spread):.4g}),\n')
    table = f"WEIGHTS = {{\n{''.join(rows)}}}\n" if rows else "WEIGHTS = {}\n"
    call = _forward(origin, module.forward, specs)
    dtype = next((str(p.dtype).removeprefix("torch.") for p in floating.values()), None)
    before = f"{before}built = {name}\n{table}"
    return _Model(kind, DRAWN.format(eval=evaluate).rstrip() + "\n\n" + call, before, dtype)


def _class(origin: Origin, init: Sequence[InitArgument], evaluate: str) -> str:
    """The head of a class made of the user's, its `__init__` taking by name what `--init` gives."""
    target = origin.target
    signature = inspect.signature(target.__init__)
    by_position = [one.value for one in init if one.name is None]
    by_name = {one.name: one.value for one in init if one.name is not None}
    told = inspect.signature(target) if parameters_of(target) is not None else "(…)"
    try:
        signature.bind(None, *by_position, **by_name)
    except TypeError as error:
        raise UsageError(f"{origin.attribute}{told} does not take these --init: {error}") from error
    named = list(signature.parameters.values())[1:]
    places = [p.name for p in named if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    taken, passed = [], []
    for number, one in enumerate(init):
        if one.name is not None:
            taken.append(one.name)
            passed.append(f"{one.name}={one.name}")
        else:
            taken.append(places[number] if number < len(places) else f"argument_{number}")
            passed.append(taken[-1])
    lines = [f"class Model(source.{origin.attribute}):"]
    if taken or evaluate:
        lines.append(f"    def __init__({', '.join(['self', *taken])}):")
        lines.append(f"        super().__init__({', '.join(passed)})")
        lines += [evaluate] if evaluate else []
        lines.append("")
    return "\n".join(lines)


def _forward(
    origin: Origin, function: Any, specs: Sequence[InputSpec], called: str = "super().forward"
) -> str:
    """A `forward` of just these inputs. Raises UsageError where the function does not take them."""
    parameters = parameters_of(function)
    passed = [spec.name for spec in specs]
    if parameters is not None:
        kinds = {parameter.kind for parameter in parameters.values()}
        takes_any = inspect.Parameter.VAR_KEYWORD in kinds
        by_place = inspect.Parameter.VAR_POSITIONAL in kinds
        unknown = [name for name in passed if name not in parameters]
        if unknown and not (takes_any or by_place):
            raise UsageError(
                f"{origin.attribute} takes {', '.join(parameters) or 'nothing'}; it has no "
                f"{unknown[0]}: name each --input as it does"
            )
        missing = [
            name
            for name, p in parameters.items()
            if p.default is p.empty
            and name not in passed
            and p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)
        ]
        if missing and not by_place:
            raise UsageError(
                f'{origin.attribute} also takes {missing[0]}; give --input "{missing[0]}: …"'
            )
        only = [n for n, p in parameters.items() if p.kind is p.POSITIONAL_ONLY]
        if not (by_place and unknown):
            passed = [name if name in only else f"{name}={name}" for name in passed]
    names = ", ".join(spec.name for spec in specs)
    return f"    def forward(self, {names}):\n        return {called}({', '.join(passed)})\n"


def _file(
    origin: Origin,
    specs: Sequence[InputSpec],
    sizes: Sizes,
    init: Sequence[InitArgument],
    parts: _Model,
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
    return (
        f'"""{parts.kind.capitalize()} {origin.told} as a problem.\n\n'
        "Made by `python -m beamsearch new`. It imports that code, which must stay where it is, "
        "and\nfollows every change of it. Its sizes are the whole numbers below and in the last "
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
        shapes = {n: v for n, v in instance.arguments.values.items() if n in _inputs(instance)}
    except ProblemError as error:
        told = one_line(str(error.__cause__ or error))
        raise ProblemError(f"{origin.told} cannot be built: {told}") from error
    given = ", ".join(f"{name} {tuple(getattr(v, 'shape', ()))}" for name, v in shapes.items())
    try:
        with ShapesOfRecurrence():  # type: ignore[no-untyped-call]
            instance.reference()
    except Exception as error:
        told = one_line(str(error))
        where = "on shapes alone" if device == "meta" else "on the CPU"
        raise ProblemError(
            f"{origin.told} fails {where} with {given}: {type(error).__name__}: {told}"
        ) from error


def _inputs(instance: Any) -> tuple[str, ...]:
    names: tuple[str, ...] = instance.arguments.forward
    return names
