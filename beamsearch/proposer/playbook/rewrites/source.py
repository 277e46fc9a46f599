"""A Triton module as the rewrites see it: kernels and their launches; and what a rewrite is."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import takewhile
from typing import Any, TypeGuard

from beamsearch.proposer.playbook.rewrites.hints import Hints, HostValues
from kernel_profiling import syntax

Result = tuple[str, str]
"""What was done, and the new source."""


class NotApplicable(Exception):
    """A rewrite does not fit this module; the message says why. Never leaves the rewrites."""


@dataclass(frozen=True, eq=False)
class Rewrite:
    """A source-to-source change of Triton kernels that keeps what they compute. Each is equal to
    itself alone, whatever an extension makes it of.

    `apply` gives every form of it that fits, best guess first; none where it does not apply.
    """

    name: str
    findings: tuple[str, ...]
    """Kinds of findings that it answers."""
    apply: Callable[[str, Hints], list[Result]]


def on_module(
    change: Callable[..., str], forms: Iterable[Any] = ((),)
) -> Callable[[str, Hints], list[Result]]:
    """Applies a change of a `Module` that says what it did, with the further arguments of each
    form in turn; a form that does not fit or changes nothing has no result."""

    def apply(source: str, hints: Hints) -> list[Result]:
        results = []
        for form in forms:
            try:
                module = Module(source, hints)
                done = change(module, *form)
            except NotApplicable:
                continue
            rendered = module.render()
            results += [] if rendered is None else [(done, rendered)]
        return results

    return apply


def on_kernel(
    change: Callable[..., str], forms: Iterable[Any] = ((),)
) -> Callable[[str, Hints], list[Result]]:
    """The same for a change of one `Launch`: of the first kernel with one launch that it fits."""

    def first(module: Module, *form: Any) -> str:
        for name in module.kernels:
            try:
                return change(module.one_launch(name), *form)
            except NotApplicable:
                continue
        raise NotApplicable("no kernel that it fits")

    return on_module(first, forms)


class Module:
    """A parsed module. Rewrites change its tree and render it again."""

    def __init__(self, source: str, hints: Hints) -> None:
        """Raises NotApplicable where the source does not parse."""
        try:
            self.tree = syntax.parse(source)
        except (SyntaxError, ValueError) as error:
            raise NotApplicable(str(error)) from error
        self.source, self.hints = source, hints
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
            for node in ast.walk(function):
                match node:
                    case ast.Call(ast.Subscript(ast.Name(name))) if name in self.kernels:
                        launch = Launch(self, self.kernels[name], node, function)
                        self.launches[name].append(launch)

    def render(self) -> str | None:
        """The module's source, or None where nothing changed. What it renders parses."""
        source = _rendered(self.tree)
        if source == _unchanged(self.source):
            return None
        syntax.parse(source)
        return source

    def one_launch(self, name: str) -> Launch:
        """The kernel's only launch. Raises NotApplicable for tuned, shared or unusual kernels."""
        if not self.is_plain(name):
            raise NotApplicable(f"{name} is tuned, called by others or not launched once")
        return self.launches[name][0]

    def is_plain(self, name: str) -> bool:
        """Whether a kernel is launched once and used by nothing else, such as a tuner."""
        reads = [n for n in ast.walk(self.tree) if isinstance(n, ast.Name) and n.id == name]
        decorators = self.kernels[name].decorator_list
        return len(self.launches[name]) == len(reads) == len(decorators) == 1

    def values(self, name: str) -> dict[str, int]:
        """The integers that a kernel's only launch passes, as far as they can be worked out."""
        if len(self.launches[name]) != 1:
            return {}
        launch = self.launches[name][0]
        host = HostValues(self.tree, launch.function, self.hints.arguments)
        given = {p.arg: launch.argument(p.arg) for p in parameters(launch.kernel)}
        found = {key: host.value(node) for key, node in given.items() if node is not None}
        return {key: value for key, value in found.items() if type(value) is int}


def _rendered(tree: ast.Module) -> str:
    ast.fix_missing_locations(tree)
    parts: list[str] = []
    for node in tree.body:
        if parts and isinstance(node, ast.FunctionDef | ast.ClassDef):
            parts.append("\n")
        parts.append(_docstring(node) or ast.unparse(node))
    return "\n".join(parts) + "\n"


@lru_cache(maxsize=64)
def _unchanged(source: str) -> str:
    """What a source is when it is rendered as it is: many forms are compared with one."""
    return _rendered(syntax.parse(source))


def _docstring(node: ast.stmt) -> str | None:
    """A module's docstring as people write it; None for anything else."""
    match node:
        case ast.Expr(ast.Constant(str(value))) if '"' not in value and "\\" not in value:
            return f'"""{value}"""\n'
    return None


def _is_jit(decorator: ast.expr) -> bool:
    target = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
    return name == "jit"


@dataclass
class Launch:
    """One `kernel[grid](...)`, the kernel, and the host function around the launch."""

    module: Module
    kernel: ast.FunctionDef
    call: ast.Call
    function: ast.FunctionDef | ast.AsyncFunctionDef

    def argument(self, name: str) -> ast.expr | None:
        """What is passed for a parameter; None where a default or a starred argument is."""
        if (given := keyword(self.call, name)) is not None:
            return given
        plain = takewhile(lambda value: not isinstance(value, ast.Starred), self.call.args)
        names = (p.arg for p in parameters(self.kernel))
        return dict(zip(names, plain, strict=False)).get(name)

    def set_argument(self, name: str, value: str) -> None:
        """Pass another value for a parameter (or launch option) that the kernel has."""
        names = [p.arg for p in parameters(self.kernel)]
        own = next((k for k in self.call.keywords if k.arg == name), None)
        if own is not None:
            own.value = parse(value)
        elif name in names and names.index(name) < len(self.call.args):
            self.call.args[names.index(name)] = parse(value)
        else:
            self.call.keywords.append(ast.keyword(arg=name, value=parse(value)))

    def add_constexpr(self, wanted: str, value: str) -> str:
        """A new constexpr parameter and what is passed for it; its name, free in the kernel."""
        name = fresh(self.kernel, wanted)
        self.kernel.args.args.append(ast.arg(arg=name, annotation=parse("tl.constexpr")))
        if self.kernel.args.defaults:  # a parameter after one with a default needs one
            self.kernel.args.defaults.append(ast.Constant(value=1))
        self.call.keywords.append(ast.keyword(arg=name, value=parse(value)))
        return name

    def on_host(self, text: str) -> str:
        """A kernel expression over parameters, as the host writes it. Raises NotApplicable."""
        node, values = parse(text), {}
        own = {p.arg for p in parameters(self.kernel)}
        for name in names_in(node):
            value = self.argument(name) if name in own else None
            if value is None:
                raise NotApplicable(f"{name} is not passed plainly, or not known on the host")
            values[name] = value
        return ast.unparse(substitute(node, values))

    def assigned(self, name: str) -> ast.expr | None:
        """What the host function assigns to a name, where that happens once."""
        nodes = list(ast.walk(self.function))
        stores = [n for n in nodes if isinstance(n, ast.Name) and n.id == name and is_store(n)]
        found = [n.value for n in nodes if isinstance(n, ast.Assign) and n.targets == stores]
        return found[0] if len(stores) == 1 and found else None

    def grid_axes(self) -> list[ast.expr]:
        """The grid's axes as host expressions; `META[...]` stays. Raises NotApplicable."""
        assert isinstance(self.call.func, ast.Subscript)
        grid: ast.expr | None = self.call.func.slice
        if isinstance(grid, ast.Name):
            grid = self.assigned(grid.id)
        if isinstance(grid, ast.Lambda):
            grid = substitute(copy(grid.body), {grid.args.args[0].arg: parse("META")})
        axes = grid.elts if isinstance(grid, ast.Tuple) else []
        if axes and not any(isinstance(axis, ast.Starred) for axis in axes):
            return [copy(axis) for axis in axes]
        raise NotApplicable("the grid is not written axis by axis")

    def set_axis(self, axis: int, text: str) -> None:
        """Another expression for one axis of the grid."""
        axes = self.grid_axes()
        axes[axis] = parse(text)
        self.set_grid(axes)

    def set_grid(self, axes: list[ast.expr]) -> None:
        """Another grid, a function of the launch's block sizes where it uses them."""
        new: ast.expr = ast.Tuple(elts=axes, ctx=ast.Load())
        if "META" in names_in(new):
            new = parse(f"lambda META: {ast.unparse(new)}")
        assert isinstance(self.call.func, ast.Subscript)
        grid = self.call.func.slice
        nodes = list(ast.walk(self.function))
        if isinstance(grid, ast.Name):
            uses = [n for n in nodes if isinstance(n, ast.Name) and n.id == grid.id]
            if len(uses) == 2:  # the assignment and this launch
                for node in nodes:
                    if isinstance(node, ast.Assign) and node.targets[0] in uses:
                        node.value = new
                        return
        self.call.func.slice = new


def parameters(kernel: ast.FunctionDef) -> list[ast.arg]:
    """A kernel's parameters, in order."""
    return [*kernel.args.posonlyargs, *kernel.args.args, *kernel.args.kwonlyargs]


def constexprs(kernel: ast.FunctionDef) -> set[str]:
    """Names of the parameters that are annotated `tl.constexpr`."""
    own = parameters(kernel)
    return {p.arg for p in own if p.annotation and "constexpr" in ast.unparse(p.annotation)}


def fresh(node: ast.AST, wanted: str) -> str:
    """A name like the wanted one that the node does not use."""
    used = names_in(node) | {a.arg for a in ast.walk(node) if isinstance(a, ast.arg)}
    name, number = wanted, 2
    while name in used:
        name, number = f"{wanted}_{number}", number + 1
    return name


def is_store(node: ast.Name) -> bool:
    """Whether a name is written here."""
    return isinstance(node.ctx, ast.Store)


def names_in(*nodes: ast.AST, context: type[ast.expr_context] = ast.expr_context) -> set[str]:
    """Every name that is read or written under the nodes, or only those in one context."""
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


def copy(node: ast.expr) -> ast.expr:
    """The same expression as a new tree."""
    return parse(ast.unparse(node))


class _Replacer(ast.NodeTransformer):
    def __init__(self, make: Callable[[ast.AST], Any], inner_first: bool) -> None:
        self.make = make
        self.inner_first = inner_first

    def visit(self, node: ast.AST) -> Any:
        if self.inner_first:
            node = self.generic_visit(node)
        made = self.make(node)
        if made is None:
            return node if self.inner_first else self.generic_visit(node)
        return made


def replace(tree: ast.AST, make: Callable[[ast.AST], Any], *, inner_first: bool = False) -> Any:
    """Put what `make` gives in the place of nodes: another node, or statements for a statement.
    Where it gives None the node stays. What is put there is not looked into; `inner_first`: nodes
    are looked at after those in them."""
    return _Replacer(make, inner_first).visit(tree)


def substitute(tree: ast.AST, values: Mapping[str, ast.expr]) -> Any:
    """Put expressions in the place of names that are read."""

    def value(node: ast.AST) -> ast.expr | None:
        if isinstance(node, ast.Name) and node.id in values and not is_store(node):
            return copy(values[node.id])
        return None

    return replace(tree, value)


def is_call(node: ast.AST | None, *names: str) -> TypeGuard[ast.Call]:
    """Whether a node is a call of `tl.<name>` (or of `triton.<name>`)."""
    match node:
        case ast.Call(ast.Attribute(ast.Name("tl" | "triton"), name)):
            return name in names
    return False


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
    while True:
        match node:
            case ast.Call(ast.Attribute(inner, "to")):
                node = inner
            case _:
                return node
