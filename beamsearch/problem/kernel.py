"""A kernel's source: entry point, binding, fingerprint."""

from __future__ import annotations

import ast
import difflib
import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import ModuleType
from typing import Any

from beamsearch.errors import KernelError
from kernel_profiling.syntax import parse

ENTRY_POINTS = ("kernel_function", "ModelNew")
LAUNCH_PARAMETERS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""What Triton takes at a launch beside the kernel's own arguments."""
CACHE_HINTS = ("cache_modifier", "eviction_policy")
"""What a load or a store takes that changes no value."""


@dataclass(frozen=True)
class CallArguments:
    """Everything a kernel may ask for by name, and what `ModelNew` is built from.

    `values` maps a name to a tensor or a plain value, already settled where names clash: the
    parameters of `forward` win over the model's parameters and buffers, those over hyperparameters.
    """

    values: Mapping[str, Any]
    forward: tuple[str, ...]
    """Names of `forward`'s parameters, in order."""
    init: tuple[Any, ...] = ()
    """Positional arguments of the model's `__init__`; none where one of them is an object that no
    other process can be handed."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """The model's parameters and buffers by dotted name."""
    gradients: int = 0
    """How many of `forward`, the last, are gradients of outputs: `backward_function` is called with
    them."""

    @property
    def of_forward(self) -> CallArguments:
        """The same without gradients."""
        names = self.forward[len(self.forward) - self.gradients :]
        return replace(
            self,
            values={name: value for name, value in self.values.items() if name not in names},
            forward=self.forward[: len(self.forward) - self.gradients],
            gradients=0,
        )


def gradient_names(count: int) -> tuple[str, ...]:
    """What the gradients of so many outputs are called."""
    return ("grad_output",) if count == 1 else tuple(f"grad_output{n}" for n in range(count))


def read_kernel(path: Path) -> str:
    """Source of a kernel file. Raises KernelError where it is missing or `check_source` does."""
    try:
        source = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise KernelError(f"cannot read the kernel file {path}: {error}") from error
    check_source(source, str(path))
    return source


def check_source(source: str, where: str = "the kernel") -> None:
    """Raise KernelError where the source does not parse or defines no entry point."""
    try:
        tree = parse(source)
    except (SyntaxError, ValueError) as error:
        line = getattr(error, "lineno", None)
        at = f" line {line}" if line else ""
        said = error.msg if isinstance(error, SyntaxError) else error
        raise KernelError(f"{where}{at} does not parse: {said}") from error
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    if not names & set(ENTRY_POINTS):
        raise KernelError(
            f"{where} defines no kernel_function (and no ModelNew); "
            "add `def kernel_function(...)` that takes the problem's arguments by name"
        )


def fingerprint(source: str) -> str:
    """Sixteen hex digits of the source without comments, docstrings and layout.

    The same under every Python that parses it. Raises SyntaxError where the source does not parse.
    """
    return _digest(_bare(source))


def build(source: str) -> str:
    """Sixteen hex digits of what a source is built like: `fingerprint` without its numbers and
    launch parameters, so that kernels of one build differ in constants alone.

    Raises SyntaxError where the source does not parse.
    """
    tree = _bare(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float):
            node.value = 0
        elif isinstance(node, ast.Call):
            node.keywords = [k for k in node.keywords if k.arg not in LAUNCH_PARAMETERS]
    return _digest(tree)


def interpretation(source: str) -> str:
    """`fingerprint` without what Triton's interpreter never sees: launch parameters at a launch
    (`kernel[grid](…)`) and cache hints of a load or a store, as far as they are constants and
    nothing else in the source names them. Kernels of one interpretation are one kernel to it.

    Raises SyntaxError where the source does not parse.
    """
    tree = _bare(source)
    nodes = list(ast.walk(tree))
    named = {node.id for node in nodes if isinstance(node, ast.Name)}
    named |= {node.arg for node in nodes if isinstance(node, ast.arg)}
    named |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    named |= {str(node.value) for node in nodes if isinstance(node, ast.Constant)}
    for call in (node for node in nodes if isinstance(node, ast.Call)):
        unseen: set[str] = set()
        if isinstance(call.func, ast.Subscript):
            unseen = {*LAUNCH_PARAMETERS} - named
        elif isinstance(call.func, ast.Attribute) and call.func.attr in ("load", "store"):
            unseen = {*CACHE_HINTS} - named
        call.keywords = [
            k for k in call.keywords if k.arg not in unseen or not isinstance(k.value, ast.Constant)
        ]
    return _digest(tree)


def _bare(source: str) -> ast.Module:
    """The parsed source without docstrings."""
    tree = parse(source)
    for node in ast.walk(tree):
        if not isinstance(node, ast.Module | ast.FunctionDef | ast.ClassDef):
            continue
        if ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree


def _digest(tree: ast.Module) -> str:
    return hashlib.sha256(_told(tree).encode()).hexdigest()[:16]


def _told(node: object) -> str:
    """A syntax tree in words. Not `ast.dump`: later Pythons know more fields, which it prints
    though they are empty, and leave out others."""
    if isinstance(node, ast.JoinedStr):  # some Pythons end a format with an empty text
        texts = [_told(part) for part in node.values if getattr(part, "value", None) != ""]
        return f"JoinedStr([{', '.join(texts)}])"
    if isinstance(node, ast.AST):
        fields = [(name, value) for name, value in ast.iter_fields(node) if value not in (None, [])]
        parts = [f"{name}={_told(value)}" for name, value in sorted(fields) if name != "kind"]
        if isinstance(node, ast.Constant) and node.value is None:
            parts = ["None"]
        return f"{type(node).__name__}({', '.join(parts)})"
    if isinstance(node, list):
        return f"[{', '.join(map(_told, node))}]"
    return repr(node)


def shared_lines(one: str, other: str) -> float:
    """The share (0..1) of two sources' lines that are the same, in order."""
    lines = one.splitlines(), other.splitlines()
    return difflib.SequenceMatcher(None, *lines, autojunk=False).ratio()


def alike(one: str, other: str) -> bool:
    """Whether two sources are one kernel but for a few lines, such as launch parameters: at least
    nine tenths of their lines are the same, in order."""
    return shared_lines(one, other) >= 0.9


def unified_diff(before: str, after: str, before_name: str, after_name: str) -> str:
    """Unified diff of two sources."""
    return "\n".join(
        difflib.unified_diff(
            before.splitlines(), after.splitlines(), before_name, after_name, lineterm=""
        )
    )


def bind(module: ModuleType, arguments: CallArguments) -> Callable[[], Any]:
    """The one binding: a call without arguments, used by verification, timing and profiling. One
    with `*args, **kwargs`, to be called in any way, gets everything by name; one with `*args` alone
    gets there what it does not name of `forward`'s arguments, the parameters and the buffers.

    Raises KernelError where a required name cannot be bound, listing what can.
    """
    if arguments.gradients:
        return _bind_both(module, arguments)
    function = getattr(module, "kernel_function", None)
    if function is None:
        return _bind_model(module, arguments)
    placed = bound_by_position(module, arguments)
    values = arguments.values
    rest = _rest(function)
    positional: list[Any] = []
    bound = dict(values) if rest is None else {}
    parameters = _parameters(function)
    for name, parameter in parameters.items():
        known = placed.get(name, name)
        first = parameter.kind is parameter.POSITIONAL_ONLY
        if first or (rest and parameter.kind is not parameter.KEYWORD_ONLY):
            bound.pop(name, None)
            positional.append(values.get(known, parameter.default))
        elif known in values:
            bound[name] = values[known]
    positional += [values[known] for name, known in placed.items() if name not in parameters]
    return lambda: function(*positional, **bound)


def bound_by_position(module: ModuleType, arguments: CallArguments) -> dict[str, str]:
    """Parameters of `kernel_function` with names of its own -> what they stand for: what alone
    begins like one (`w` is `weight`); of the others the arguments of `forward` that no name asks
    for, then parameters and buffers, where there are just as many. `args[0]` and so on are those
    that `*args` takes.

    Raises KernelError where that is ambiguous.
    """
    function = getattr(module, "kernel_function", None)
    if function is None:
        return {}
    placed = _placed(_parameters(function), arguments)
    if rest := _rest(function):
        values = arguments.values
        asked = (placed.get(name, name) for name in _parameters(function))
        inputs, weights = _free(arguments, {id(values[name]) for name in asked if name in values})
        placed |= {f"{rest}[{n}]": name for n, name in enumerate([*inputs, *weights])}
    return placed


def _placed(
    parameters: Mapping[str, inspect.Parameter], arguments: CallArguments
) -> dict[str, str]:
    """`bound_by_position` of parameters that take one value."""
    strange = [
        name
        for name, parameter in parameters.items()
        if name not in arguments.values and parameter.default is parameter.empty
    ]
    if not strange:
        return {}
    values = arguments.values
    inputs, weights = _free(arguments, {id(values[name]) for name in parameters if name in values})
    short = _abbreviated(strange, [*inputs, *weights])
    others = [name for name in strange if name not in short]
    if not others:
        return short
    for free in (inputs, [*inputs, *weights]):
        meant = [name for name in free if name not in short.values()]
        if len(meant) == len(others):
            return short | dict(zip(others, meant, strict=True))
    raise KernelError(
        f"kernel_function asks for `{strange[0]}`, which this problem lacks; it has "
        f"{', '.join(sorted(values))}"
    )


def _free(arguments: CallArguments, taken: Container[int]) -> tuple[list[str], list[str]]:
    """Names of `forward`'s arguments, and of the parameters and buffers, without values of these
    identities."""
    values = arguments.values
    names = {id(value): name for name, value in reversed(list(values.items()))}
    found = [id(value) for value in arguments.state.values()]
    return (
        [name for name in arguments.forward if id(values[name]) not in taken],
        [names[one] for one in found if one in names and one not in taken],
    )


def _abbreviated(strange: list[str], names: list[str]) -> dict[str, str]:
    """Names of a kernel's own -> the one that alone begins so, where no two mean the same."""
    begin = {name: [one for one in names if one.startswith(name)] for name in strange}
    found = {name: meant[0] for name, meant in begin.items() if len(meant) == 1}
    counts = Counter(found.values())
    return {name: meant for name, meant in found.items() if counts[meant] == 1}


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """The parameters of a function that take one value."""
    variable = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    found = inspect.signature(function).parameters
    return {name: item for name, item in found.items() if item.kind not in variable}


def _rest(function: Callable[..., Any]) -> str | None:
    """What a function calls its `*args`; "" where it has none, None where it takes `**` as well."""
    found = inspect.signature(function).parameters.values()
    names = {parameter.kind: parameter.name for parameter in found}
    rest = names.get(inspect.Parameter.VAR_POSITIONAL, "")
    return None if rest and inspect.Parameter.VAR_KEYWORD in names else rest


def _bind_both(module: ModuleType, arguments: CallArguments) -> Callable[[], Any]:
    """The kernel, then its backward; what they return in one tuple."""
    backward = getattr(module, "backward_function", None)
    if backward is None or not hasattr(module, "kernel_function"):
        raise KernelError(
            "the kernel defines no kernel_function with a backward_function(grad_outputs, inputs, "
            "outputs, saved), which --backward asks for"
        )
    forward = bind(module, arguments.of_forward)
    names = arguments.forward[-arguments.gradients :]
    given = tuple(arguments.values[name] for name in names)
    inputs = {
        name: value
        for name, value in arguments.of_forward.values.items()
        if hasattr(value, "untyped_storage")
    }

    def both() -> tuple[Any, ...]:
        returned = forward()
        if not isinstance(returned, tuple) or len(returned) != 2:
            raise KernelError(
                "a kernel_function beside a backward_function returns (outputs, saved): what the "
                "reference returns, and whatever backward_function is to get"
            )
        outputs, saved = returned
        found = backward(given if len(given) > 1 else given[0], inputs, outputs, saved)
        parts = (outputs, found)
        return tuple(
            x for part in parts for x in (part if isinstance(part, tuple | list) else (part,))
        )

    return both


def _bind_model(module: ModuleType, arguments: CallArguments) -> Callable[[], Any]:
    """`ModelNew` with the reference's weights, loaded by name and shape."""
    model_class = getattr(module, "ModelNew", None)
    if model_class is None:
        raise KernelError("the kernel defines neither kernel_function nor ModelNew")
    inputs = [arguments.values[name] for name in arguments.forward]
    model = model_class(*arguments.init)
    own = dict(model.named_parameters()) | dict(model.named_buffers())
    for name, tensor in own.items():
        given = arguments.state.get(name)
        if given is None or given.shape != tensor.shape:
            have = [f"{key} {tuple(t.shape)}" for key, t in arguments.state.items()]
            raise KernelError(
                f"ModelNew's `{name}` {tuple(tensor.shape)} has no counterpart in the reference; "
                f"it has {', '.join(have) or 'none'}"
            )
        owner, _, last = name.rpartition(".")
        part = model.get_submodule(owner)  # whatever device either tensor is on
        (part._parameters if last in part._parameters else part._buffers)[last] = given
    return lambda: model(*inputs)
