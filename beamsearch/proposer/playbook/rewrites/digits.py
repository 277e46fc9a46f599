"""A flat index taken apart by // and %: the digits, their extents, and what replaces them."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field

from beamsearch.proposer.playbook.rewrites.flow import (
    REDUCTIONS,
    SHAPED,
    Flow,
    factors,
    merge_augmented,
    product,
)
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    calls,
    constexprs,
    fresh,
    is_call,
    is_store,
    names_in,
    parse,
    replace,
    statements,
    uncast,
)


@dataclass(frozen=True)
class Part:
    """`index // (dens) % mod`, products as sorted factors; no mod leaves the quotient open."""

    dens: tuple[str, ...] = ()
    mod: tuple[str, ...] | None = None


@dataclass
class Digit:
    """One digit of a decomposed index."""

    name: str
    extent: str
    """Kernel expression; empty for the last, open one."""


@dataclass
class FlatIndex:
    """`name = program * BLOCK + tl.arange(0, BLOCK)` (or a bare program id), and its digits."""

    name: str
    """Of the index; for a bare program id one that no kernel can hold."""
    axis: int
    program: str
    """The program id as written, casts included."""
    block: str = ""
    """The constexpr lane count; empty for a bare program id."""
    digits: list[Digit] = field(default_factory=list)
    """The fastest first; the last is open."""
    compares: list[ast.Compare] = field(default_factory=list)
    """Every `index < total`."""
    total: str = ""
    host_total: str = ""
    """The same on the host; the grid's axis is `cdiv` of it."""

    def inner(self, count: int) -> list[str]:
        """Factors of the product of the first extents."""
        return sorted(f for digit in self.digits[:count] for f in factors(parse(digit.extent)))


def prepare(launch: Launch) -> FlatIndex:
    """The kernel's flat lane index, taken apart. Raises NotApplicable where it is not the only one,
    or where it, its bound and the grid do not fit together."""
    kernel = launch.kernel
    merge_augmented(kernel.body)
    flow = Flow(kernel)
    root = _vector_index(kernel, flow)
    if calls(kernel, *SHAPED, *REDUCTIONS) or any(
        isinstance(n, ast.Subscript) and "None" in ast.unparse(n.slice) for n in ast.walk(kernel)
    ):
        raise NotApplicable("the kernel uses axes itself")
    take_apart(kernel, root, flow)
    for node in ast.walk(kernel):
        match node:
            case ast.Compare(ast.Name(name), [sign], [total]) if name == root.name:
                root.compares.append(node)
                if not isinstance(sign, ast.Lt) or root.total not in ("", ast.unparse(total)):
                    raise NotApplicable("the flat index has no one bound")
                root.total = ast.unparse(total)
    if not root.total:
        raise NotApplicable("the flat index has no bound")
    root.host_total = launch.on_host(root.total)
    match launch.grid_axes()[root.axis : root.axis + 1]:
        case [ast.Call(function, [size, *_])] if ast.unparse(function).endswith("cdiv"):
            if host_factors(size, launch) == host_factors(parse(root.host_total), launch):
                return root
    raise NotApplicable("the grid does not cover the index's bound in blocks")


def _vector_index(kernel: ast.FunctionDef, flow: Flow) -> FlatIndex:
    if len(calls(kernel, "arange")) != 1:
        raise NotApplicable("not exactly one arange")
    for name, value in flow.definitions.items():
        match value:
            case ast.BinOp(
                start, ast.Add(), ast.Call(args=[ast.Constant(0), ast.Name(block)]) as lanes
            ) if is_call(lanes, "arange") and block in constexprs(kernel):
                start = flow.definitions.get(ast.unparse(start), start)
            case _:
                continue
        match start:
            case ast.BinOp(program, ast.Mult(), ast.Name(by)) if by == block:
                pass
            case ast.BinOp(ast.Name(by), ast.Mult(), program) if by == block:
                pass
            case _:
                continue
        axis = _program_axis(program, flow)
        if axis is not None:
            return FlatIndex(name, axis, ast.unparse(flow.inline(program)), block)
    raise NotApplicable("no flat index")


def program_axis(node: ast.AST) -> int | None:
    """The grid axis of a program id; None for anything else."""
    if is_call(node, "program_id"):
        match [*node.args, *(k.value for k in node.keywords)]:
            case [ast.Constant(int(axis)), *_]:
                return axis
    return None


def _program_axis(node: ast.expr, flow: Flow) -> int | None:
    return program_axis(uncast(flow.inline(node)))


def _part(node: ast.AST, root: FlatIndex, flow: Flow) -> Part | None:  # noqa: PLR0911
    """The part of the root that an expression is; None for anything else."""
    match node:
        case ast.Name(name) if name == root.name:
            return Part()
        case ast.Name(name) if name in flow.definitions:
            return _part(flow.definitions[name], root, flow)
        case ast.Call() if not root.block and _program_axis(node, flow) == root.axis:
            return Part()
        case ast.BinOp(left, ast.FloorDiv() | ast.Mod() as sign, by):
            inner = _part(left, root, flow)
            if inner is None or inner.mod is not None:
                return None
            if flow.is_vector(by) or flow.depends(by, {root.name}):
                return None
            given = factors(by, flow.definitions)
            if isinstance(sign, ast.Mod):
                return Part(inner.dens, tuple(given))
            return Part(tuple(sorted([*inner.dens, *given])))
    return None


def take_apart(kernel: ast.FunctionDef, root: FlatIndex, flow: Flow) -> None:
    """Find the digits of an index, and replace their uses in the kernel by names.

    The digits' names are then undefined until the caller defines them. Raises NotApplicable where
    the parts do not form one chain.
    """
    operations = [node for node in ast.walk(kernel) if isinstance(node, ast.BinOp)]
    every = [part for node in operations if (part := _part(node, root, flow))]
    found = {part: "" for part in every if part != Part()}
    for name, value in flow.definitions.items():
        part = _part(value, root, flow)
        if part in found:
            found[part] = found[part] or name
    *chain, last = _chain(list(found))
    base = root.name if root.name.isidentifier() else "program"
    names: dict[Part, str] = {}
    for i, part in enumerate(chain):
        names[part] = found[part] or fresh(kernel, f"{base}_{i}")
        root.digits.append(Digit(names[part], product(list(part.mod or ()))))
    names[last] = found.get(last) or fresh(kernel, f"{base}_rest")
    root.digits.append(Digit(names[last], ""))
    for part, name in found.items():
        if part not in names and _really_used(kernel, root, flow, part, name):
            raise NotApplicable("a quotient that is no digit is used")

    def named(node: ast.AST) -> ast.expr | list[ast.stmt] | None:
        match node:
            case ast.Assign([ast.Name(name)], value):
                part = _part(value, root, flow)
                return [] if part is not None and names.get(part) == name else None
            case ast.BinOp():
                part = _part(node, root, flow)
                return parse(names[part]) if part is not None and part in names else None
        return None

    replace(kernel, named)
    drop_unread(kernel, keep=root.name)


def _chain(found: list[Part]) -> list[Part]:
    """The parts as one chain of digits, the fastest first, and the open one that ends it."""
    needed = [p for p in found if p.mod is not None]
    chain: list[Part] = []
    dens: Counter[str] = Counter()
    while len(matching := [p for p in needed if Counter(p.dens) == dens]) == 1:
        chain += matching
        needed.remove(matching[0])
        dens += Counter(matching[0].mod)
    if needed or not chain:
        raise NotApplicable("the index is not taken apart into digits")
    if any(Counter(p.dens) - dens for p in found if p.mod is None):
        raise NotApplicable("a quotient beyond the last digit")
    return [*chain, Part(tuple(sorted(dens.elements())))]


def _really_used(
    kernel: ast.FunctionDef, root: FlatIndex, flow: Flow, part: Part, name: str
) -> bool:
    """Whether a quotient is used otherwise than inside other parts, or where it is given a name."""
    aside: set[int] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.BinOp) and _part(node, root, flow) not in (None, part):
            aside |= {id(n) for n in ast.walk(node) if n is not node}
        if isinstance(node, ast.Assign) and names_in(node.targets[0]) == {name}:
            aside.add(id(node.value))
    return any(
        node.id == name and not is_store(node)
        if isinstance(node, ast.Name)
        else isinstance(node, ast.BinOp) and _part(node, root, flow) == part
        for node in ast.walk(kernel)
        if id(node) not in aside
    )


def drop_unread(kernel: ast.FunctionDef, keep: str = "") -> None:
    """Drop top-level definitions without effects that nothing reads."""
    before = -1
    while before != len(kernel.body):
        before, read = len(kernel.body), {keep} | names_in(kernel, context=ast.Load)
        for s in list(kernel.body):
            match s:
                case ast.Assign([ast.Name(name)]) if name not in read:
                    if "atomic" not in ast.unparse(s):
                        kernel.body.remove(s)


def host_factors(node: ast.expr, launch: Launch) -> list[str]:
    """Factors of a host product; `y.numel()` of a tensor allocated here is its sizes' product."""
    match node:
        case ast.BinOp(left, ast.Mult(), right):
            return sorted([*host_factors(left, launch), *host_factors(right, launch)])
        case ast.Name(name):
            match launch.assigned(name):
                case (ast.BinOp() | ast.Name() | ast.Call(ast.Attribute(_, "numel"))) as value:
                    inner = host_factors(value, launch)
                    return inner if len(inner) > 1 or inner[0].isidentifier() else [name]
        case ast.Call(ast.Attribute(ast.Name(tensor), "numel")):
            match launch.assigned(tensor):
                case ast.Call(function, [ast.Tuple(sizes), *_]) if ast.unparse(function) in (
                    "torch.empty",
                    "torch.zeros",
                ):
                    return sorted(f for size in sizes for f in host_factors(size, launch))
    return [ast.unparse(node)]


def without(parts: list[str], remove: list[str]) -> list[str] | None:
    """Factors left after others are divided out; None where they do not divide."""
    left = Counter(parts)
    left.subtract(remove)
    return None if min(left.values(), default=0) < 0 else sorted(left.elements())


def rows_on_host(launch: Launch, root: FlatIndex, count: int) -> tuple[str, bool]:
    """The total over the first extents on the host, and whether that divides exactly."""
    inner = host_factors(parse(launch.on_host(product(root.inner(count)))), launch)
    left = without(host_factors(parse(root.host_total), launch), inner)
    if left is not None:
        return product(left), True
    return f"triton.cdiv({root.host_total}, {product(inner)})", False


def digit_lines(digits: list[Digit], rest: str) -> list[str]:
    """Definitions of digits, out of what is left of the index."""
    lines = []
    below: list[str] = []
    for digit in digits:
        quotient = f"{rest} // ({' * '.join(below)})" if below else rest
        lines.append(f"{digit.name} = {quotient}{f' % ({digit.extent})' if digit.extent else ''}")
        below.append(f"({digit.extent})")
    return lines


def replace_compares(launch: Launch, root: FlatIndex, text: str) -> None:
    """Put a condition in the place of every compare of the index with its bound."""
    replace(launch.kernel, lambda node: parse(text) if node in root.compares else None)


def definition_at(kernel: ast.FunctionDef, index: str) -> int:
    """Where the flat index is defined. Raises NotApplicable where that is not at the top."""
    for at, statement in enumerate(kernel.body):
        if isinstance(statement, ast.Assign) and names_in(statement.targets[0]) == {index}:
            return at
    raise NotApplicable("the flat index is not defined at the top")


def place(kernel: ast.FunctionDef, root: FlatIndex, lines: list[str]) -> None:
    """Put new definitions where the flat index was defined; drop what nothing reads."""
    at = definition_at(kernel, root.name)
    kernel.body[at : at + 1] = statements("\n".join(lines))
    drop_unread(kernel)
