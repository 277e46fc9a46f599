"""The class `Model` of a problem that is made of a user's module or function."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamsearch.errors import UsageError
from beamsearch.export.init_argument import InitArgument
from beamsearch.export.input_spec import InputSpec
from beamsearch.export.origin import Origin, parameters_of

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
class ModelSource:
    """Source of the model, and what goes with it."""

    kind: str
    source: str
    before: str = ""
    dtype: str | None = None


def model_source(
    origin: Origin,
    specs: Sequence[InputSpec],
    init: Sequence[InitArgument],
    *,
    evaluated: bool = False,
) -> ModelSource:
    """The class `Model` for what was named. Raises UsageError where it is none of the kinds, or
    takes other arguments."""
    import torch

    evaluate = "        self.eval()" if evaluated else ""
    target = origin.target
    if isinstance(target, type) and issubclass(target, torch.nn.Module):
        call = _forward(origin, target.forward, specs)
        return ModelSource("the class", _class(origin, init, evaluate) + "\n" + call)
    if init:
        raise UsageError(f"{origin.told} is no class of a module, and takes no --init")
    if isinstance(target, torch.nn.Module):
        return _built(origin, target, "the module", f"source.{origin.attribute}", specs, evaluate)
    if not callable(target):
        raise UsageError(f"{origin.told} is a {type(target).__name__}: no module and no function")
    if _builds(target, specs):
        held = f"built_{origin.attribute.replace('.', '_')}"
        before = f'if not hasattr(source, "{held}"):  # once in a process\n'
        before += f"    source.{held} = source.{origin.attribute}()\n"
        made = _called(origin, target)
        return _built(origin, made, "the module from", f"source.{held}", specs, evaluate, before)
    if evaluated:
        raise UsageError(f"{origin.told} is a function, which has no --eval")
    call = _forward(origin, target, specs, f"source.{origin.attribute}")
    return ModelSource("the function", f"class Model(torch.nn.Module):\n{call}")


def _builds(target: Any, specs: Sequence[InputSpec]) -> bool:
    """Whether a function wants no arguments, and has none of the inputs' names: it builds a module.
    One of which Python knows no names takes tensors."""
    parameters = parameters_of(target)
    if parameters is None:
        return False
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    own = {name: one for name, one in parameters.items() if one.kind not in variable}
    if any(one.default is one.empty for one in own.values()):
        return False
    return not any(spec.name in own for spec in specs) and bool(own or not parameters)


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
) -> ModelSource:
    import torch

    if isinstance(module, torch.jit.ScriptModule) or hasattr(module, "_orig_mod"):
        raise UsageError(f"{origin.told} is compiled; name the module that it was made of")
    floating = {n: p for n, p in module.named_parameters() if p.is_floating_point()}
    rows = []
    for key, parameter in floating.items():
        spread, mean = torch.std_mean(parameter.detach().double(), correction=0)
        if torch.isfinite(mean) and torch.isfinite(spread):
            rows.append(f'    "{key}": ({float(mean):.4g}, {float(spread):.4g}),\n')
    table = f"WEIGHTS = {{\n{''.join(rows)}}}\n" if rows else "WEIGHTS = {}\n"
    call = _forward(origin, module.forward, specs)
    dtype = next((str(p.dtype).removeprefix("torch.") for p in floating.values()), None)
    before = f"{before}built = {name}\n{table}"
    return ModelSource(kind, DRAWN.format(eval=evaluate).rstrip() + "\n\n" + call, before, dtype)


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
    else:  # one of PyTorch's own, which Python knows no names of and which takes them all the same
        passed = [f"{name}={name}" for name in passed]
    names = ", ".join(spec.name for spec in specs)
    return f"    def forward(self, {names}):\n        return {called}({', '.join(passed)})\n"
