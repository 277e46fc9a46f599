"""A Triton module as the rewrites see it: kernels, parameters, and where they are launched."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeGuard

from kernel_profiling import syntax


class NotApplicable(Exception):
    """A rewrite does not fit this module; the message says why. Never leaves the rewrites."""


@dataclass
class Launch:
    """One `kernel[grid](...)` and the host function around it."""

    call: ast.Call
    function: ast.FunctionDef | ast.AsyncFunctionDef

    @property
    def grid(self) -> ast.expr:
        """What stands between the brackets."""
        assert isinstance(self.call.func, ast.Subscript)
        return self.call.func.slice


class Module:
    """A parsed module. Rewrites change its tree and render it again."""

    def __init__(self, source: str) -> None:
        """Raises NotApplicable where the source does not parse."""
        try:
            self.tree = syntax.parse(source)
        except (SyntaxError, ValueError) as error:
            raise NotApplicable(str(error)) from error
        self.before = ast.dump(self.tree)
        self.kernels: dict[str, ast.FunctionDef] = {
            node.name: node
            for node in self.tree.body
            if isinstance(node, ast.FunctionDef) and any(map(_is_jit, node.decorator_list))
        }
        self.launches: dict[str, list[Launch]] = {name: [] for name in self.kernels}
        for function in ast.walk(self.tree):
            if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
                continue
            if function.name in self.kernels:
                continue
            for name, call in _launch_calls(function):
                if name in self.launches:
                    self.launches[name].append(Launch(call, function))

    def render(self) -> str | None:
        """The module's source, or None where nothing changed. What it renders parses."""
        ast.fix_missing_locations(self.tree)
        if ast.dump(self.tree) == self.before:
            return None
        parts: list[str] = []
        for node in self.tree.body:
            text = _docstring(node) or ast.unparse(node)
            big = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if parts and big:
                parts.append("\n")
            parts.append(text)
        source = "\n".join(parts) + "\n"
        syntax.parse(source)
        return source

    def launched(self) -> Iterator[tuple[str, ast.FunctionDef, list[Launch]]]:
        """Every kernel that host code launches."""
        for name, kernel in self.kernels.items():
            if self.launches[name]:
                yield name, kernel, self.launches[name]

    def is_called(self, name: str) -> bool:
        """Whether a kernel is also called from other kernels."""
        return any(
            isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == name
            for kernel in self.kernels.values()
            for node in ast.walk(kernel)
        )

    def one_launch(self, name: str) -> Launch:
        """The kernel's only launch. Raises NotApplicable for tuned, shared or unusual kernels."""
        kernel, launches = self.kernels[name], self.launches[name]
        if len(launches) != 1 or len(kernel.decorator_list) != 1 or self.is_called(name):
            raise NotApplicable(f"{name} is tuned, called by others or launched more than once")
        return launches[0]


def _docstring(node: ast.stmt) -> str | None:
    """A module's docstring as people write it; None for anything else."""
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        value = node.value.value
        if isinstance(value, str) and '"' not in value and "\\" not in value:
            return f'"""{value}"""\n'
    return None


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return name == "jit"


def _launch_calls(function: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(function):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Subscript)
            and isinstance(node.func.value, ast.Name)
        ):
            yield node.func.value.id, node


def parameters(kernel: ast.FunctionDef) -> list[ast.arg]:
    """A kernel's parameters, in order."""
    return [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]


def is_constexpr(parameter: ast.arg) -> bool:
    """Whether a parameter is annotated `tl.constexpr`."""
    return parameter.annotation is not None and "constexpr" in ast.unparse(parameter.annotation)


def constexprs(kernel: ast.FunctionDef) -> set[str]:
    """Names of a kernel's constexpr parameters."""
    return {p.arg for p in parameters(kernel) if is_constexpr(p)}


def argument(kernel: ast.FunctionDef, launch: Launch, name: str) -> ast.expr | None:
    """What a launch passes for a parameter; None where a default or a starred argument does."""
    for keyword in launch.call.keywords:
        if keyword.arg == name:
            return keyword.value
    names = [p.arg for p in [*kernel.args.posonlyargs, *kernel.args.args]]
    at = names.index(name)
    values = launch.call.args
    if at < len(values) and not any(isinstance(v, ast.Starred) for v in values[: at + 1]):
        return values[at]
    return None


def set_argument(kernel: ast.FunctionDef, launch: Launch, name: str, value: ast.expr) -> None:
    """Pass another value for a parameter (or launch option) that the kernel has."""
    for keyword in launch.call.keywords:
        if keyword.arg == name:
            keyword.value = value
            return
    names = [p.arg for p in parameters(kernel)]
    if name in names and names.index(name) < len(launch.call.args):
        launch.call.args[names.index(name)] = value
    else:
        launch.call.keywords.append(ast.keyword(arg=name, value=value))


def add_constexpr(kernel: ast.FunctionDef, launch: Launch, wanted: str, value: ast.expr) -> str:
    """A new constexpr parameter and what the launch passes for it; its name, free in the kernel."""
    name = fresh(kernel, wanted)
    parameter = ast.arg(arg=name, annotation=parse("tl.constexpr"))
    kernel.args.args.append(parameter)
    if kernel.args.defaults:  # a parameter after one with a default needs one
        kernel.args.defaults.append(ast.Constant(value=1))
    launch.call.keywords.append(ast.keyword(arg=name, value=value))
    return name


def fresh(node: ast.AST, wanted: str) -> str:
    """A name like the wanted one that the node does not use."""
    used = names_in(node) | {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name


def names_in(node: ast.AST) -> set[str]:
    """Every name a node reads or writes."""
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def names_read(*nodes: ast.AST) -> set[str]:
    """Every name that is read under the nodes."""
    return _names(nodes, ast.Load)


def names_set(*nodes: ast.AST) -> set[str]:
    """Every name that is written under the nodes."""
    return _names(nodes, ast.Store)


def _names(nodes: Iterable[ast.AST], context: type[ast.expr_context]) -> set[str]:
    walked = (n for node in nodes for n in ast.walk(node))
    return {n.id for n in walked if isinstance(n, ast.Name) and isinstance(n.ctx, context)}


def assigned_in(body: list[ast.stmt]) -> dict[str, ast.expr]:
    """What the plain assignments of a body give their names, the last one of each."""
    return {
        s.targets[0].id: s.value
        for s in body
        if isinstance(s, ast.Assign) and isinstance(s.targets[0], ast.Name)
    }


def parse(text: str) -> ast.expr:
    """The expression that a text is."""
    return syntax.expression(text)


def statements(text: str) -> list[ast.stmt]:
    """The statements that a text is."""
    return syntax.parse(text).body


def grid_axes(launch: Launch) -> list[ast.expr]:
    """The grid's axes as host expressions; `META[...]` stays. Raises NotApplicable."""
    grid: ast.expr = launch.grid
    if isinstance(grid, ast.Name):
        grid = single_assignment(launch.function, grid.id)
    if isinstance(grid, ast.Lambda):
        own = grid.args.args[0].arg
        grid = Substitute({own: ast.Name(id="META", ctx=ast.Load())}).visit(copy(grid.body))
    if isinstance(grid, ast.Tuple):
        return [copy(axis) for axis in grid.elts]
    raise NotApplicable("the grid is not written as a tuple")


def set_grid(launch: Launch, axes: list[ast.expr]) -> None:
    """Another grid for a launch, a function of the launch's block sizes where it uses them."""
    body = ast.Tuple(elts=axes, ctx=ast.Load())
    uses_meta = "META" in names_in(body)
    new = parse("lambda META: 0") if uses_meta else body
    if isinstance(new, ast.Lambda):
        new.body = body
    grid = launch.grid
    if isinstance(grid, ast.Name):
        uses = [n for n in ast.walk(launch.function) if isinstance(n, ast.Name) and n.id == grid.id]
        if len(uses) == 2:  # the assignment and this launch
            for node in ast.walk(launch.function):
                if isinstance(node, ast.Assign) and node.targets[0] in uses:
                    node.value = new
                    return
    assert isinstance(launch.call.func, ast.Subscript)
    launch.call.func.slice = new


def single_assignment(function: ast.AST, name: str) -> ast.expr:
    """What a name is assigned, where that happens once. Raises NotApplicable."""
    values = []
    for node in ast.walk(function):
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store):
            values.append(node)
    if len(values) == 1:
        for node in ast.walk(function):
            if isinstance(node, ast.Assign) and node.targets == [values[0]]:
                return node.value
    raise NotApplicable(f"{name} is not assigned once")


def copy(node: ast.expr) -> ast.expr:
    """The same expression as a new tree."""
    return parse(ast.unparse(node))


class Substitute(ast.NodeTransformer):
    """Replace names that are read by expressions."""

    def __init__(self, values: Mapping[str, ast.expr]) -> None:
        self.values = values

    def visit_Name(self, node: ast.Name) -> ast.expr:
        """A name, or what stands for it."""
        if isinstance(node.ctx, ast.Load) and node.id in self.values:
            return copy(self.values[node.id])
        return node


def substitute(node: ast.expr, values: dict[str, ast.expr]) -> ast.expr:
    """A new expression with names replaced."""
    result: ast.expr = Substitute(values).visit(copy(node))
    return result


class _Replacer(ast.NodeTransformer):
    def __init__(self, make: Callable[[ast.AST], ast.expr | None]) -> None:
        self.make = make

    def visit(self, node: ast.AST) -> ast.AST:
        """What is made of the node, or the node with what is made of those in it."""
        made = self.make(node)
        return self.generic_visit(node) if made is None else made


def replace(tree: ast.AST, make: Callable[[ast.AST], ast.expr | None]) -> Any:
    """Put what `make` gives in the place of nodes; where it gives None, look inside."""
    return _Replacer(make).visit(tree)


def host_value(kernel: ast.FunctionDef, launch: Launch, node: ast.expr) -> ast.expr:
    """A kernel expression over parameters, as the host writes it. Raises NotApplicable."""
    values: dict[str, ast.expr] = {}
    own = {p.arg for p in parameters(kernel)}
    for name in names_in(node):
        if name not in own:
            raise NotApplicable(f"{name} is not known on the host")
        value = argument(kernel, launch, name)
        if value is None:
            raise NotApplicable(f"{name} is not passed plainly")
        values[name] = value
    return substitute(node, values)


def is_call(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Whether a node is a call of `tl.<name>` (or of `triton.<name>`)."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("tl", "triton")
        and node.func.attr in names
    )


def calls(node: ast.AST, *names: str) -> list[ast.Call]:
    """Every call of the named `tl` functions under a node."""
    return [n for n in ast.walk(node) if is_call(n, *names)]


def keyword(call: ast.Call, name: str) -> ast.expr | None:
    """What a call is given by keyword; None without it."""
    return next((k.value for k in call.keywords if k.arg == name), None)


def narrow_mask(call: ast.Call, condition: str) -> None:
    """Mask a load or store by one more condition. Raises NotApplicable."""
    if len(call.args) > (1 if is_call(call, "load") else 2):
        raise NotApplicable("a positional mask")
    for k in call.keywords:
        if k.arg == "mask":
            k.value = parse(f"({ast.unparse(k.value)}) & {condition}")
            return
    call.keywords.append(ast.keyword(arg="mask", value=parse(condition)))


def uncast(node: ast.expr) -> ast.expr:
    """An expression without the casts around it."""
    while (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "to"
    ):
        node = node.func.value
    return node
