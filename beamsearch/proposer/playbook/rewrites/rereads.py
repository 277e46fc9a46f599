"""Two loops that read the same addresses: what the first read is kept for the second.

Either as a two-dimensional tile (the loop becomes an axis, padded to a power of two), or, where the
loop is short, as a tuple of vectors in registers. Halves the reads of two-pass normalisations.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass
from functools import partial

from beamsearch.proposer.playbook.rewrites.flow import SHAPED, Flow, substitute_all, summands
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt_kernel
from beamsearch.proposer.playbook.rewrites.launch import block_parameters, set_block
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    Substitute,
    add_constexpr,
    assigned_in,
    calls,
    constexprs,
    copy,
    fresh,
    host_value,
    is_call,
    names_in,
    names_set,
    narrow_mask,
    parse,
    replace,
    set_argument,
    statements,
    uncast,
)
from beamsearch.proposer.playbook.rewrites.strip import check_not_written
from beamsearch.proposer.playbook.rewrites.unroll import make_static, range_bound
from kernel_profiling.profile import FindingKind

MOST_REGISTERS_LENGTH = 128
"""Vectors kept in registers at most."""
FORMS = (
    ("tile", 128, 4),
    ("registers", 256, 4),
    ("tile", 64, 2),
    ("tile", 64, 4),
    ("registers", 512, 4),
    ("tile", 128, 2),
    ("registers", 512, 8),
)
"""Form, lanes and warps. For 64 channels on an H200 two passes took 2.68 ms; tiles of 128 and 64
lanes with 4 warps took 1.82 and 1.90, registers of 256, 512 (4 warps) and 512 (8) 1.86, 1.88 and
2.06. The two with 2 warps are not measured."""


@dataclass
class _Pair:
    """Two loops and the loads they share."""

    first: ast.For
    second: ast.For
    shared: list[tuple[ast.Assign, ast.Assign]]
    bound: ast.expr


def apply(source: str, hints: Hints) -> list[Result]:
    """Tiles and registers, by what was fastest where it was measured."""
    results = []
    for form in FORMS:
        results += attempt_kernel(source, partial(_keep, hints, form))
    return results


def _keep(
    hints: Hints,
    form: tuple[str, int, int],
    module: Module,
    kernel: ast.FunctionDef,
    launch: Launch,
) -> str:
    kind, block, warps = form
    values = hints.launch_values(module, kernel.name)
    _name_loads(kernel)
    pair = _find(kernel, launch)
    in_registers = kind == "registers"
    done = _registers(kernel, pair, values) if in_registers else _tile(kernel, launch, pair)
    return f"{done} in {kernel.name}, read once{_resize(module, kernel, launch, block, warps)}"


def _resize(module: Module, kernel: ast.FunctionDef, launch: Launch, block: int, warps: int) -> str:
    """Another block where the kernel has one that can change, since much is kept per lane now."""
    blocks = block_parameters(module, kernel, launch)
    if len(blocks) != 1:
        return ""
    set_block(module, kernel, launch, blocks[0], block)
    set_argument(kernel, launch, "num_warps", ast.Constant(value=warps))
    return f", {blocks[0]} {block}, {warps} warps"


def _find(kernel: ast.FunctionDef, launch: Launch) -> _Pair:
    """Two top-level loops over the same range, reading the same, nothing written in between."""
    flow = Flow(kernel)
    loops = [s for s in kernel.body if isinstance(s, ast.For)]
    for first, second in itertools.pairwise(loops):
        bound = range_bound(first)
        other = range_bound(second)
        if bound is None or other is None or ast.dump(bound) != ast.dump(other):
            continue
        if calls(first, "store") or "atomic" in ast.unparse(first):
            continue
        if any(
            isinstance(n, ast.For | ast.If | ast.While) for s in first.body for n in ast.walk(s)
        ):
            continue
        shared = []
        for a in _loads(first):
            for b in _loads(second):
                if _key(a, first, flow) == _key(b, second, flow):
                    shared.append((a, b))
        if shared:
            check_not_written(kernel, launch)
            return _Pair(first, second, shared, bound)
    raise NotApplicable("no two loops read the same")


def _name_loads(kernel: ast.FunctionDef) -> None:
    """Give every read inside a larger expression of a loop its own statement."""
    number = 0
    for loop in [s for s in kernel.body if isinstance(s, ast.For)]:
        body: list[ast.stmt] = []
        for s in loop.body:
            inner = calls(s, "load") if isinstance(s, ast.AugAssign | ast.Assign | ast.Expr) else []
            if isinstance(s, ast.Assign) and _load_call(s.value) is not None:
                inner = []
            for call in inner:
                name = fresh(kernel, f"read_{number}" if number else "read")
                number += 1
                load = ast.Assign(targets=[ast.Name(id=name, ctx=ast.Store())], value=copy(call))
                assert isinstance(s, ast.AugAssign | ast.Assign | ast.Expr)
                _swap_call(s, call, ast.Name(id=name, ctx=ast.Load()))
                body.append(load)
            body.append(s)
        loop.body = body
    ast.fix_missing_locations(kernel)


def _loads(loop: ast.For) -> list[ast.Assign]:
    """Statements `x = tl.load(…)`, casts included, directly in a loop."""
    return [
        s
        for s in loop.body
        if isinstance(s, ast.Assign)
        and isinstance(s.targets[0], ast.Name)
        and _load_call(s.value) is not None
    ]


def _load_call(value: ast.expr) -> ast.Call | None:
    node = uncast(value)
    return node if is_call(node, "load") else None


def _key(statement: ast.Assign, loop: ast.For, flow: Flow) -> str:
    """Address and mask with local definitions inlined and the loop variable renamed."""
    call = _load_call(statement.value)
    assert call is not None and isinstance(loop.target, ast.Name)
    local = _local_definitions(loop)
    variable = {loop.target.id: ast.Name(id="_i", ctx=ast.Load())}
    parts = [call.args[0], *(k.value for k in call.keywords if k.arg in ("mask", "other"))]
    texts = []
    for part in parts:
        whole = Substitute(variable).visit(flow.inline(substitute_all(part, local)))
        texts.append(" + ".join(sorted(ast.unparse(s) for s in summands(whole))))
    return "|".join(texts)


def _local_definitions(loop: ast.For) -> dict[str, ast.expr]:
    """Names a loop's body assigns once, loads aside."""
    return {
        name: value
        for name, value in assigned_in(loop.body).items()
        if not calls(value, "load") and name not in names_in(value)
    }


def _registers(kernel: ast.FunctionDef, pair: _Pair, values: dict[str, int]) -> str:
    """Both loops unrolled whole; the loaded vectors kept in a tuple."""
    length = pair.bound.value if isinstance(pair.bound, ast.Constant) else None
    if isinstance(pair.bound, ast.Name) and pair.bound.id in constexprs(kernel):
        length = values.get(pair.bound.id)
    if not isinstance(length, int) or length > MOST_REGISTERS_LENGTH:
        raise NotApplicable("not a short loop of known length")
    assert isinstance(pair.first.target, ast.Name) and isinstance(pair.second.target, ast.Name)
    at = kernel.body.index(pair.first)
    for number, (a, b) in enumerate(pair.shared):
        name = fresh(kernel, f"kept_{number}" if number else "kept")
        call = _load_call(a.value)
        assert call is not None and isinstance(a.targets[0], ast.Name)
        read = fresh(kernel, f"read_{number}" if number else "read")
        position = pair.first.body.index(a)
        load = ast.Assign(targets=[ast.Name(id=read, ctx=ast.Store())], value=copy(call))
        keep = statements(f"{name} = {name} + ({read},)")
        _swap_call(a, call, ast.Name(id=read, ctx=ast.Load()))
        pair.first.body[position:position] = [load, *keep]
        second = _load_call(b.value)
        assert second is not None
        _swap_call(b, second, parse(f"{name}[{pair.second.target.id}]"))
        kernel.body[at:at] = statements(f"{name} = ()")
        at += 1
    make_static(pair.first)
    make_static(pair.second)
    return f"loop over {pair.first.target.id} kept in registers"


def _swap_call(
    statement: ast.Assign | ast.AugAssign | ast.Expr, old: ast.Call, new: ast.expr
) -> None:
    statement.value = replace(statement.value, lambda node: new if node is old else None)


def _tile(kernel: ast.FunctionDef, launch: Launch, pair: _Pair) -> str:
    """The loop becomes an axis before the lanes; sums over it become reductions."""
    if calls(kernel, *SHAPED) or len(calls(kernel, "arange")) != 1:
        raise NotApplicable("the kernel uses axes itself")
    if [s for s in kernel.body if isinstance(s, ast.For)] != [pair.first, pair.second]:
        raise NotApplicable("other loops")
    assert isinstance(pair.first.target, ast.Name) and isinstance(pair.second.target, ast.Name)
    host = host_value(kernel, launch, pair.bound)
    power = parse(f"triton.next_power_of_2({ast.unparse(host)})")
    padded = add_constexpr(kernel, launch, "LENGTH", power)
    variable = pair.first.target.id
    inside = f"({variable} < {ast.unparse(pair.bound)})"
    head = statements(f"{variable} = tl.arange(0, {padded})[:, None]")
    body = [*head, *_summed(pair.first, inside)]
    later = _per_element(kernel, pair, inside)
    replace(kernel, lambda n: parse(f"{ast.unparse(n)}[None, :]") if is_call(n, "arange") else None)
    for call in calls(kernel, "zeros", "full"):
        shape = call.args[0]
        if not isinstance(shape, ast.Tuple | ast.List) or len(shape.elts) != 1:
            raise NotApplicable("an accumulator of another shape")
        call.args[0] = parse(f"(1, {ast.unparse(shape.elts[0])})")
    at, then = kernel.body.index(pair.first), kernel.body.index(pair.second)
    kernel.body[then : then + 1] = later
    kernel.body[at : at + 1] = body
    return f"loop over {variable} made an axis"


def _summed(loop: ast.For, inside: str) -> list[ast.stmt]:
    """The first loop's body over the whole axis at once: what it adds up becomes a sum."""
    body: list[ast.stmt] = []
    for s in loop.body:
        if isinstance(s, ast.AugAssign):
            if not isinstance(s.op, ast.Add) or not isinstance(s.target, ast.Name):
                raise NotApplicable("the first loop does not only sum")
            value = ast.unparse(s.value)
            total = f"tl.sum(tl.where({inside}, {value}, 0.0), axis=0)[None, :]"
            body += statements(f"{s.target.id} = {s.target.id} + {total}")
        elif isinstance(s, ast.Assign):
            for call in calls(s, "load", "store"):
                narrow_mask(call, inside)
            body.append(s)
        else:
            raise NotApplicable("the first loop does more than sum")
    return body


def _per_element(kernel: ast.FunctionDef, pair: _Pair, inside: str) -> list[ast.stmt]:
    """The second loop's body over the whole axis at once, with what the first has read."""
    assert isinstance(pair.first.target, ast.Name) and isinstance(pair.second.target, ast.Name)
    variable = pair.first.target.id
    rename = {pair.second.target.id: ast.Name(id=variable, ctx=ast.Load())}
    later: list[ast.stmt] = []
    reused = {id(b): a for a, b in pair.shared}
    for s in pair.second.body:
        if isinstance(s, ast.AugAssign) or not isinstance(s, ast.Assign | ast.Expr):
            raise NotApplicable("the second loop carries values")
        if id(s) in reused:
            a = reused[id(s)]
            assert isinstance(s, ast.Assign)
            if not _same_cast(a, s) or _set_between(kernel, pair, ast.unparse(a.targets[0])):
                raise NotApplicable("the two reads are used differently")
            if ast.unparse(s.targets[0]) != ast.unparse(a.targets[0]):
                later += statements(f"{ast.unparse(s.targets[0])} = {ast.unparse(a.targets[0])}")
            continue
        for call in calls(s, "load", "store"):
            narrow_mask(call, inside)
        later.append(Substitute(rename).visit(s))
    return later


def _set_between(kernel: ast.FunctionDef, pair: _Pair, name: str) -> bool:
    """Whether a name is set outside the two loops."""
    return name in names_set(*(s for s in kernel.body if s not in (pair.first, pair.second)))


def _same_cast(a: ast.Assign, b: ast.Assign) -> bool:
    casts = []
    for value in (a.value, b.value):
        call = _load_call(value)
        assert call is not None
        casts.append(ast.unparse(value).replace(ast.unparse(call), "_"))
    return casts[0] == casts[1]


REWRITE = Rewrite("read once", (FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY), apply)
