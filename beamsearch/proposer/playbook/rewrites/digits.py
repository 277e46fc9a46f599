"""A flat index taken apart by // and %: the digits, their extents, and what replaces them."""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass, field

from beamsearch.proposer.playbook.rewrites.flow import Flow, factors, product
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    calls,
    fresh,
    grid_axes,
    host_value,
    is_call,
    names_in,
    names_read,
    parse,
    single_assignment,
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
    extent: str | None
    """Kernel expression; None for the last, open one."""


@dataclass
class FlatIndex:
    """`name = program * BLOCK + tl.arange(0, BLOCK)` (or `name = program`), and its digits."""

    name: str
    """Of the index; a scalar root may be the bare `tl.program_id(a)`, then this is its text."""
    axis: int
    program: str
    """The program id as written, casts included."""
    block: str | None
    """The constexpr lane count; None for a scalar root."""
    digits: list[Digit] = field(default_factory=list)
    """The fastest first; the last is open."""

    def inner(self, count: int) -> list[str]:
        """Factors of the product of the first extents."""
        found: list[str] = []
        for digit in self.digits[:count]:
            assert digit.extent is not None
            found += factors(parse(digit.extent))
        return sorted(found)


def find_vector_index(kernel: ast.FunctionDef, flow: Flow) -> FlatIndex:
    """The kernel's flat lane index. Raises NotApplicable where there is none, or several."""
    if len(calls(kernel, "arange")) != 1:
        raise NotApplicable("not exactly one arange")
    for name, value in flow.definitions.items():
        if not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add)):
            continue
        if not is_call(value.right, "arange"):
            continue
        block = ast.unparse(value.right.args[1])
        start = value.left
        if isinstance(start, ast.Name) and start.id in flow.definitions:
            start = flow.definitions[start.id]
        if not (isinstance(start, ast.BinOp) and isinstance(start.op, ast.Mult)):
            continue
        sides = [start.left, start.right]
        if ast.unparse(sides[0]) == block:
            sides.reverse()
        if ast.unparse(sides[1]) != block or not block.isidentifier():
            continue
        axis = program_axis(sides[0], flow)
        if axis is not None and ast.unparse(value.right.args[0]) == "0":
            return FlatIndex(name, axis, ast.unparse(flow.inline(sides[0])), block)
    raise NotApplicable("no flat index")


def program_axis(node: ast.expr, flow: Flow) -> int | None:
    """The grid axis of a (cast) program id."""
    node = uncast(flow.inline(node))
    if is_call(node, "program_id"):
        given = node.args[0] if node.args else node.keywords[0].value
        if isinstance(given, ast.Constant) and isinstance(given.value, int):
            return given.value
    return None


class _Parts:
    """Recognises parts of one root."""

    def __init__(self, root: FlatIndex, flow: Flow) -> None:
        self.root = root
        self.flow = flow

    def part(self, node: ast.expr) -> Part | None:  # noqa: PLR0911
        """The part an expression is, or None."""
        if isinstance(node, ast.Name):
            if node.id == self.root.name:
                return Part()
            value = self.flow.definitions.get(node.id)
            return self.part(value) if value is not None else None
        if self.root.block is None and isinstance(node, ast.Call):
            return Part() if program_axis(node, self.flow) == self.root.axis else None
        if not isinstance(node, ast.BinOp):
            return None
        if not isinstance(node.op, ast.FloorDiv | ast.Mod):
            return None
        inner = self.part(node.left)
        if inner is None or inner.mod is not None:
            return None
        by = tuple(factors(node.right, self.flow.definitions))
        if self.flow.is_vector(node.right) or self.flow.depends(node.right, {self.root.name}):
            return None
        if isinstance(node.op, ast.Mod):
            return Part(inner.dens, by)
        return Part(tuple(sorted([*inner.dens, *by])), None)


class _Replace(ast.NodeTransformer):
    """Replace every digit by its name, and drop the statements that named it."""

    def __init__(self, parts: _Parts, names: dict[Part, str]) -> None:
        self.parts = parts
        self.names = names

    def visit_Assign(self, node: ast.Assign) -> ast.AST | None:
        """Drop `name = <digit>`, and definitions of quotients nobody needs any more."""
        if len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            part = self.parts.part(node.value)
            if part in self.names and self.names[part] == node.targets[0].id:
                return None
        return self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        """A digit written in place."""
        part = self.parts.part(node)
        if part is not None and part in self.names:
            return ast.Name(id=self.names[part], ctx=ast.Load())
        return self.generic_visit(node)


def take_apart(kernel: ast.FunctionDef, root: FlatIndex, flow: Flow) -> None:
    """Find the digits of an index, and replace their uses in the kernel by names.

    The digits' names are then undefined until the caller defines them. Raises NotApplicable where
    the parts do not form one chain.
    """
    parts = _Parts(root, flow)
    found: dict[Part, str | None] = {}
    for node in ast.walk(kernel):
        if isinstance(node, ast.BinOp):
            part = parts.part(node)
            if part is not None and part != Part():
                found.setdefault(part, None)
    for name, value in flow.definitions.items():
        part = parts.part(value)
        if part in found and found[part] is None:
            found[part] = name
    open_parts = [p for p in found if p.mod is None]
    chain, last = _chain(found)
    names: dict[Part, str] = {}
    for i, (part, given) in enumerate(chain):
        names[part] = given or fresh(kernel, f"{root_name(root)}_{i}")
        assert part.mod is not None
        root.digits.append(Digit(names[part], product(list(part.mod))))
    names[last] = found.get(last) or fresh(kernel, f"{root_name(root)}_rest")
    root.digits.append(Digit(names[last], None))
    for part in open_parts:
        if part not in names and _really_used(kernel, parts, part, found[part]):
            raise NotApplicable("a quotient that is no digit is used")
    replacer = _Replace(parts, names)
    kernel.body = [s for s in map(replacer.visit, kernel.body) if s is not None]
    drop_unread(kernel, keep=root.name)


def _chain(found: dict[Part, str | None]) -> tuple[list[tuple[Part, str | None]], Part]:
    """The parts as one chain of digits, the fastest first, and the open one that ends it."""
    needed = {p: n for p, n in found.items() if p.mod is not None}
    chain: list[tuple[Part, str | None]] = []
    dens: Counter[str] = Counter()
    while True:
        matching = [p for p in needed if Counter(p.dens) == dens]
        if len(matching) != 1:
            break
        part = matching[0]
        assert part.mod is not None
        chain.append((part, needed.pop(part)))
        dens += Counter(part.mod)
    if needed or not chain:
        raise NotApplicable("the index is not taken apart into digits")
    if any(Counter(p.dens) - dens for p in found if p.mod is None):
        raise NotApplicable("a quotient beyond the last digit")
    return chain, Part(tuple(sorted(dens.elements())), None)


def root_name(root: FlatIndex) -> str:
    """A name to build others on."""
    return root.name if root.name.isidentifier() else "program"


def _really_used(kernel: ast.FunctionDef, parts: _Parts, part: Part, name: str | None) -> bool:
    """Whether a quotient is used otherwise than inside other parts."""
    inside: set[int] = set()
    for node in ast.walk(kernel):
        if isinstance(node, ast.BinOp) and parts.part(node) not in (None, part):
            inside |= {id(n) for n in ast.walk(node) if n is not node}
    for node in ast.walk(kernel):
        if id(node) in inside:
            continue
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load):
            return True
        if isinstance(node, ast.BinOp) and parts.part(node) == part:
            owner = any(
                isinstance(s, ast.Assign) and s.value is node and names_in(s.targets[0]) == {name}
                for s in ast.walk(kernel)
            )
            if not owner:
                return True
    return False


def drop_unread(kernel: ast.FunctionDef, keep: str = "") -> None:
    """Drop top-level definitions without effects that nothing reads."""

    def is_needed(s: ast.stmt) -> bool:
        name = s.targets[0] if isinstance(s, ast.Assign) and len(s.targets) == 1 else None
        if not isinstance(name, ast.Name) or name.id in read or name.id == keep:
            return True
        return "atomic" in ast.unparse(s)

    before = -1
    while before != len(kernel.body):
        before, read = len(kernel.body), names_read(kernel)
        kernel.body = [s for s in kernel.body if is_needed(s)]


def bound_of(kernel: ast.FunctionDef, index: str) -> tuple[list[ast.Compare], str]:
    """Every `index < total`, and the one total. Raises NotApplicable."""
    found = [
        node
        for node in ast.walk(kernel)
        if isinstance(node, ast.Compare)
        and isinstance(node.left, ast.Name)
        and node.left.id == index
        and len(node.ops) == 1
    ]
    totals = {ast.unparse(node.comparators[0]) for node in found}
    if len(totals) != 1 or not all(isinstance(n.ops[0], ast.Lt) for n in found):
        raise NotApplicable("the flat index has no one bound")
    return found, totals.pop()


def check_grid(
    kernel: ast.FunctionDef, launch: Launch, root: FlatIndex, total: str
) -> tuple[list[ast.expr], ast.expr]:
    """The grid's axes and the index's total on the host; the axis must be cdiv(total, block)."""
    axes = grid_axes(launch)
    if root.axis >= len(axes):
        raise NotApplicable("the grid has no such axis")
    axis = axes[root.axis]
    host_total = host_value(kernel, launch, parse(total))
    if not (isinstance(axis, ast.Call) and ast.unparse(axis.func).endswith("cdiv")):
        raise NotApplicable("the grid is not a number of blocks")
    if host_factors(axis.args[0], launch) != host_factors(host_total, launch):
        raise NotApplicable("the grid does not cover the index's bound")
    return axes, host_total


def host_factors(node: ast.expr, launch: Launch) -> list[str]:  # noqa: PLR0911
    """Factors of a host product; `y.numel()` of a tensor allocated here is its sizes' product."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return sorted([*host_factors(node.left, launch), *host_factors(node.right, launch)])
    if isinstance(node, ast.Name):
        try:
            value = single_assignment(launch.function, node.id)
        except NotApplicable:
            return [node.id]
        if isinstance(value, ast.BinOp | ast.Name) or _is_numel(value):
            inner = host_factors(value, launch)
            return inner if len(inner) > 1 or inner[0].isidentifier() else [node.id]
        return [node.id]
    if _is_numel(node):
        assert isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
        tensor = node.func.value
        if isinstance(tensor, ast.Name):
            try:
                made = single_assignment(launch.function, tensor.id)
            except NotApplicable:
                return [ast.unparse(node)]
            if (
                isinstance(made, ast.Call)
                and made.args
                and isinstance(made.args[0], ast.Tuple)
                and ast.unparse(made.func) in ("torch.empty", "torch.zeros")
            ):
                sizes = [host_factors(size, launch) for size in made.args[0].elts]
                return sorted(f for size in sizes for f in size)
    return [ast.unparse(node)]


def _is_numel(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "numel"
    )


def without(parts: list[str], remove: list[str]) -> list[str] | None:
    """Factors left after others are divided out; None where they do not divide."""
    left = Counter(parts)
    for item in remove:
        if left[item] <= 0:
            return None
        left[item] -= 1
    return sorted(left.elements())


def rows_on_host(
    kernel: ast.FunctionDef, launch: Launch, total: ast.expr, inner: list[str]
) -> tuple[ast.expr, bool]:
    """Total over a product of kernel factors on the host, and whether that divides exactly."""
    inner_host = host_value(kernel, launch, parse(product(inner)))
    left = without(host_factors(total, launch), host_factors(inner_host, launch))
    if left is not None:
        return parse(product(left)), True
    divisor = product(host_factors(inner_host, launch))
    return parse(f"triton.cdiv({ast.unparse(total)}, {divisor})"), False
