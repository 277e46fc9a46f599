"""Two loops that read the same addresses: what the first read is used again by the second.

Either as a two-dimensional tile (the loop becomes an axis, padded to a power of two), or, where the
loop is short, as a tuple of vectors in registers. Halves the reads of two-pass normalisations.
"""

from __future__ import annotations

import ast
import itertools
from dataclasses import dataclass

from beamsearch.proposer.playbook.rewrites.flow import SHAPED, Flow, parts, substitute_all
from beamsearch.proposer.playbook.rewrites.launch import block_parameters, set_block
from beamsearch.proposer.playbook.rewrites.rows import check_not_written
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    assigned_in,
    calls,
    constexprs,
    fresh,
    is_call,
    names_in,
    narrow_mask,
    on_kernel,
    parse,
    replace,
    statements,
    substitute,
    uncast,
)
from beamsearch.proposer.playbook.rewrites.unroll import make_static, range_bound
from kernel_profiling.profile import FindingKind

MOST_REGISTERS_LENGTH = 128
"""Vectors in registers at most."""
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
class _Read:
    """`name = tl.load(…)`, casts included."""

    statement: ast.Assign
    name: str
    call: ast.Call

    def cast(self) -> str:
        """The casts around the load."""
        return ast.unparse(self.statement.value).replace(ast.unparse(self.call), "_")


@dataclass
class _Pair:
    """Two loops over the same range, by their variables, and the reads they share."""

    first: ast.For
    second: ast.For
    variables: tuple[str, str]
    bound: ast.expr
    shared: list[tuple[_Read, _Read]]


def _read_once(launch: Launch, form: str, block: int, warps: int) -> str:
    kernel, values = launch.kernel, launch.module.values(launch.kernel.name)
    _name_loads(kernel)
    pair = _find(launch)
    done = _tile(launch, pair) if form == "tile" else _registers(kernel, pair, values)
    done = f"{done} in {kernel.name}, read once"
    blocks = block_parameters(launch)
    if len(blocks) != 1:
        return done
    set_block(launch, blocks[0], block)  # much is held per lane now
    launch.set_argument("num_warps", f"{warps}")
    return f"{done}, {blocks[0]} {block}, {warps} warps"


def _find(launch: Launch) -> _Pair:
    """Two top-level loops over the same range, reading the same, nothing written in between."""
    flow = Flow(launch.kernel)
    for first, second in itertools.pairwise(_loops(launch.kernel)):
        match first.target, second.target, range_bound(first), range_bound(second):
            case ast.Name(one), ast.Name(two), ast.expr() as bound, ast.expr() as other:
                same = ast.dump(bound) == ast.dump(other)
            case _:
                continue
        branches = [n for n in ast.walk(first) if isinstance(n, ast.For | ast.If | ast.While)]
        written = calls(first, "store") or "atomic" in ast.unparse(first)
        if not same or written or len(branches) > 1:
            continue
        shared = [
            (a, b)
            for a in _reads(first)
            for b in _reads(second)
            if _key(a, first, one, flow) == _key(b, second, two, flow)
        ]
        if shared:
            check_not_written(launch)
            return _Pair(first, second, (one, two), bound, shared)
    raise NotApplicable("no two loops read the same")


def _loops(kernel: ast.FunctionDef) -> list[ast.For]:
    return [s for s in kernel.body if isinstance(s, ast.For)]


def _name_loads(kernel: ast.FunctionDef) -> None:
    """Give every read inside a larger expression of a loop its own statement."""
    number = 0
    for loop in _loops(kernel):
        alone = {id(read.statement) for read in _reads(loop)}
        body: list[ast.stmt] = []
        for s in loop.body:
            if isinstance(s, ast.AugAssign | ast.Assign | ast.Expr) and id(s) not in alone:
                for call in calls(s, "load"):
                    name = fresh(kernel, f"read_{number}" if number else "read")
                    number += 1
                    body += statements(f"{name} = {ast.unparse(call)}")
                    _swap(s, call, name)
            body.append(s)
        loop.body = body


def _swap(s: ast.Assign | ast.AugAssign | ast.Expr, old: ast.Call, new: str) -> None:
    s.value = replace(s.value, lambda node: parse(new) if node is old else None)


def _reads(loop: ast.For) -> list[_Read]:
    """The reads that are statements directly in a loop."""
    found = []
    for s in loop.body:
        match s:
            case ast.Assign([ast.Name(name), *_], value) if is_call(call := uncast(value), "load"):
                found.append(_Read(s, name, call))
    return found


def _key(read: _Read, loop: ast.For, variable: str, flow: Flow) -> str:
    """Address and mask with local definitions inlined and the loop variable renamed."""
    local = {
        name: value
        for name, value in assigned_in(loop.body).items()
        if not calls(value, "load") and name not in names_in(value)
    }
    texts = []
    for part in [
        read.call.args[0],
        *(k.value for k in read.call.keywords if k.arg in ("mask", "other")),
    ]:
        whole = flow.inline(substitute_all(part, local))
        whole = substitute(whole, {variable: parse("_i")})
        texts.append(" + ".join(sorted(ast.unparse(s) for s in parts(whole, ast.Add))))
    return "|".join(texts)


def _registers(kernel: ast.FunctionDef, pair: _Pair, values: dict[str, int]) -> str:
    """Both loops unrolled whole; the loaded vectors held in a tuple."""
    length: object = None
    match pair.bound:
        case ast.Constant(length):
            pass
        case ast.Name(name) if name in constexprs(kernel):
            length = values.get(name)
    if not isinstance(length, int) or length > MOST_REGISTERS_LENGTH:
        raise NotApplicable("not a short loop of known length")
    at = kernel.body.index(pair.first)
    for number, (a, b) in enumerate(pair.shared):
        held = fresh(kernel, f"kept_{number}" if number else "kept")
        read = fresh(kernel, f"read_{number}" if number else "read")
        position = pair.first.body.index(a.statement)
        pair.first.body[position:position] = statements(
            f"{read} = {ast.unparse(a.call)}\n{held} = {held} + ({read},)"
        )
        _swap(a.statement, a.call, read)
        _swap(b.statement, b.call, f"{held}[{pair.variables[1]}]")
        kernel.body[at + number : at + number] = statements(f"{held} = ()")
    make_static(pair.first)
    make_static(pair.second)
    return f"loop over {pair.variables[0]} kept in registers"


def _tile(launch: Launch, pair: _Pair) -> str:
    """The loop becomes an axis before the lanes; sums over it become reductions."""
    kernel, variable = launch.kernel, pair.variables[0]
    if calls(kernel, *SHAPED) or len(calls(kernel, "arange")) != 1:
        raise NotApplicable("the kernel uses axes itself")
    if _loops(kernel) != [pair.first, pair.second]:
        raise NotApplicable("other loops")
    bound = ast.unparse(pair.bound)
    power = f"triton.next_power_of_2({launch.on_host(bound)})"
    padded = launch.add_constexpr("LENGTH", power)
    inside = f"({variable} < {bound})"
    head = statements(f"{variable} = tl.arange(0, {padded})[:, None]")
    body = [*head, *_summed(pair.first, inside)]
    later = _per_element(kernel, pair, inside)
    replace(kernel, lambda n: parse(f"{ast.unparse(n)}[None, :]") if is_call(n, "arange") else None)
    for call in calls(kernel, "zeros", "full"):
        match call.args[0]:
            case ast.Tuple([length]) | ast.List([length]):
                call.args[0] = parse(f"(1, {ast.unparse(length)})")
            case _:
                raise NotApplicable("an accumulator of another shape")
    at, then = kernel.body.index(pair.first), kernel.body.index(pair.second)
    kernel.body[then : then + 1] = later
    kernel.body[at : at + 1] = body
    return f"loop over {variable} made an axis"


def _summed(loop: ast.For, inside: str) -> list[ast.stmt]:
    """The first loop's body over the whole axis at once: what it adds up becomes a sum."""
    body: list[ast.stmt] = []
    for s in loop.body:
        match s:
            case ast.AugAssign(ast.Name(name), ast.Add(), value):
                terms = f"tl.where({inside}, {ast.unparse(value)}, 0.0)"
                body += statements(f"{name} = {name} + tl.sum({terms}, axis=0)[None, :]")
            case ast.Assign():
                _narrow(s, inside)
                body.append(s)
            case _:
                raise NotApplicable("the first loop does not only sum")
    return body


def _per_element(kernel: ast.FunctionDef, pair: _Pair, inside: str) -> list[ast.stmt]:
    """The second loop's body over the whole axis at once, with what the first has read."""
    later: list[ast.stmt] = []
    shared = {id(b.statement): (a, b) for a, b in pair.shared}
    outside = [s for s in kernel.body if s not in (pair.first, pair.second)]
    for s in pair.second.body:
        if not isinstance(s, ast.Assign | ast.Expr):
            raise NotApplicable("the second loop carries values")
        if id(s) in shared:
            a, b = shared[id(s)]
            if a.cast() != b.cast() or a.name in names_in(*outside, context=ast.Store):
                raise NotApplicable("the two reads are used differently")
            later += statements(f"{b.name} = {a.name}") if b.name != a.name else []
        else:
            _narrow(s, inside)
            later.append(substitute(s, {pair.variables[1]: parse(pair.variables[0])}))
    return later


def _narrow(s: ast.stmt, inside: str) -> None:
    for call in calls(s, "load", "store"):
        narrow_mask(call, inside)


REWRITE = Rewrite(
    "read once",
    (FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY),
    on_kernel(_read_once, FORMS),
)
