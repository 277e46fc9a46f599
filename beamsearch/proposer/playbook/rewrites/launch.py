"""Launch parameters: warps, pipeline stages and block sizes, at the launch and in tuning lists."""

from __future__ import annotations

import ast
from collections.abc import Callable, Collection

from beamsearch.proposer.playbook.rewrites.flow import Flow
from beamsearch.proposer.playbook.rewrites.hints import Hints, HostValues
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    Result,
    Rewrite,
    calls,
    constexprs,
    is_store,
    keyword,
    names_in,
    on_module,
    parse,
)
from beamsearch.proposer.playbook.rewrites.unroll import MOST_WRITTEN_OUT, copies_of
from kernel_profiling.profile import FindingKind

WARPS = (1, 2, 4, 8, 16)
TRITONS_WARPS = 4
"""Where a launch does not say how many."""
USUAL_WARPS = (8, 4, 16)
"""Tried where the host code chooses among several."""
STAGES = (1, 2, 3, 4, 5)
FACTORS = (2, 0.5, 4, 0.25)
"""A block size is halved, doubled and quadrupled; all sizes stay powers of two."""
NEAR = (0.5, 2)
LARGEST = 16384
Point = dict[str, int]
"""Settings that change together."""


def apply(source: str, hints: Hints) -> list[Result]:
    """One parameter changed at a time, then block and warps together."""
    results: list[Result] = []
    for kernel, launches in _launched(source):
        if any("autotune" in ast.unparse(d) for d in kernel.decorator_list):
            # More configurations for an autotuned kernel: each list scaled.
            scales = (("num_warps", 2), ("num_warps", 0.5), ("num_stages", 2))
            results += on_module(_scale, [(kernel.name, *scale) for scale in scales])(source, hints)
        if launches[0].module.is_plain(kernel.name):
            near, far, stages, registers = _points(launches[0], hints)
            results += _forms(source, kernel.name, [*near, *far, *stages, *registers])
    return results


def settings_of(
    source: str, launched: Collection[str] = (), worth: Collection[str] = ()
) -> list[list[Result]]:
    """For each kernel that is launched once and not tuned by its author: its settings, one changed
    at a time, the likeliest first; with its name, where the call launches others too. `launched`:
    the kernels that the call at hand launches, where this is known; `worth`: those of them that
    take enough of its time, likewise. Others are left out."""
    found = {}
    kernels = [item for item in _launched(source) if not launched or item[0].name in launched]
    for kernel, launches in kernels:
        is_worth = not worth or kernel.name in worth
        if is_worth and launches[0].module.is_plain(kernel.name):
            near, far, stages, registers = _points(launches[0], Hints())
            points = [*near, *stages, *far, *registers]
            found[kernel.name] = _forms(source, kernel.name, points)
    if len(kernels) == 1:
        return list(found.values())
    return [[(f"{name}: {what}", form) for what, form in forms] for name, forms in found.items()]


def _launched(source: str) -> list[tuple[ast.FunctionDef, list[Launch]]]:
    """Every kernel that host code launches."""
    try:
        launches = Module(source, Hints()).launches
    except NotApplicable:
        return []
    return [(several[0].kernel, several) for several in launches.values() if several]


def _forms(source: str, name: str, points: list[Point]) -> list[Result]:
    """The source with each of the settings."""
    different = [point for i, point in enumerate(points) if point not in points[:i]]
    return on_module(_set, [(name, point) for point in different])(source, Hints())


def _points(
    launch: Launch, hints: Hints
) -> tuple[list[Point], list[Point], list[Point], list[Point]]:
    """Settings to try: warps and blocks near those there are, further ones, stages, registers. Of
    blocks those that differ at the problem's own shapes, as far as these are known."""
    kernel = launch.kernel
    given = keyword(launch.call, "num_warps")
    warps = TRITONS_WARPS if given is None else _number(_limit(given, launch))
    values = launch.module.values(kernel.name)
    close, wider = list(USUAL_WARPS), list[int]()
    if warps is not None:  # else host code chooses; what it chose compiles to the same code again
        close, wider = [warps * 2, warps // 2], [warps * 4, warps // 4]
    near: list[Point] = [{"num_warps": w} for w in close if w in WARPS]
    far: list[Point] = [{"num_warps": w} for w in wider if w in WARPS]
    for name in block_parameters(launch):
        size_with = _size_of(launch, name, hints)
        value = size_with(None)
        for factor in FACTORS:
            step: Point = {name: int(value * factor)}
            if not 1 <= step[name] <= LARGEST or size_with(step[name]) == value:
                continue
            if factor > 1 and copies_of(kernel.body, kernel, values | step) > MOST_WRITTEN_OUT:
                continue  # it would be compiled for longer than the rest of the round takes
            wide = warps and int(warps * factor)
            both: list[Point] = [{**step, "num_warps": wide}] if wide in WARPS else []
            if factor in NEAR:
                near += [*both, step]
            else:
                far += [step, *both]
    stages: list[Point] = []
    # Loads are pipelined by it where they feed a matrix product in a loop, and nowhere else.
    if any(calls(n, "dot", "dot_scaled") for n in ast.walk(kernel) if isinstance(n, ast.For)):
        now = _number(_limit(keyword(launch.call, "num_stages"), launch)) or 3
        stages = [{"num_stages": s} for s in STAGES if s != now]
    limited = keyword(launch.call, "maxnreg") is not None
    registers: list[Point] = [] if limited else [{"maxnreg": n} for n in (64, 128, 255)]
    return near, far, stages, registers


def _set(module: Module, name: str, point: Point) -> str:
    launch = module.launches[name][0]
    for key, value in point.items():
        if key in ("num_warps", "num_stages", "maxnreg"):
            given = keyword(launch.call, key)
            named = _limit(given, launch) if isinstance(given, ast.Name) else None
            if named is not None:
                named.value = value
            else:
                launch.set_argument(key, f"{value}")
        else:
            set_block(launch, key, value)
    return ", ".join(f"{key} {value}" for key, value in point.items())


def _number(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _limit(node: ast.expr | None, launch: Launch) -> ast.Constant | None:
    """The integer that says how large a block is: all of it, the limit of its min, or what the one
    assignment of a name gives it, in the host function or the module."""
    if isinstance(node, ast.Name):
        node = _assigned(node.id, launch)
    match node:
        case ast.Call(ast.Name("max"), args):
            node = next((limit for a in args if (limit := _limit_of_min(a))), None)
        case ast.Call():
            node = _limit_of_min(node)
    return node if isinstance(node, ast.Constant) and type(node.value) is int else None


def _limit_of_min(node: ast.expr) -> ast.Constant | None:
    match node:
        case ast.Call(ast.Name("min"), args):
            return next((a for a in args if isinstance(a, ast.Constant)), None)
    return None


def _size_of(launch: Launch, name: str, hints: Hints) -> Callable[[int | None], int]:
    """What a block's length is with another limit, and with its own for None: less than the limit
    where the other side of its `min` is. The limit itself where the shapes are not known."""
    given = launch.argument(name)
    length = _assigned(given.id, launch) if isinstance(given, ast.Name) else given
    limit = _limit(given, launch)
    values = HostValues(launch.module.tree, launch.function, hints.arguments)
    own = _number(limit) or 0

    def size(other: int | None) -> int:
        if limit is None or length is None:
            return other or own
        limit.value = other or own
        try:
            found = values.value(length)
        finally:
            limit.value = own
        return found if type(found) is int else other or own

    return size


def _assigned(name: str, launch: Launch) -> ast.expr | None:
    """What a name is given, where that happens once in all."""
    tree, function = launch.module.tree, launch.function
    stores = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id == name and is_store(n)]
    is_parameter = any(isinstance(a, ast.arg) and a.arg == name for a in ast.walk(function.args))
    if len(stores) == 1 and not is_parameter:
        for statement in [*function.body, *tree.body]:
            if isinstance(statement, ast.Assign) and statement.targets == stores:
                return statement.value
    return None


def block_parameters(launch: Launch) -> list[str]:
    """Constexpr parameters that can be changed at the launch, the grid following along."""
    kernel, found = launch.kernel, []
    sized = [a for call in calls(kernel, "arange", "static_range") for a in call.args]
    lengths = {a.id for a in sized if isinstance(a, ast.Name)}
    sizes = {name: _number(_limit(launch.argument(name), launch)) for name in constexprs(kernel)}
    for name, size in sorted(sizes.items()):
        if size is None or name not in lengths:
            continue
        try:
            axes = launch.grid_axes()
        except NotApplicable:
            continue
        given = launch.argument(name)
        nodes = [n for n in ast.walk(launch.function) if isinstance(n, ast.Name)]
        reads = [n.id for n in nodes if not is_store(n)]
        if _follows(axes, name) or (isinstance(given, ast.Name) and reads.count(given.id) > 1):
            found.append(name)  # the grid is made from it, or the host makes it from the name
        elif _grid_literals(axes, size):
            if list(sizes.values()).count(size) == 1:
                found.append(name)
        elif not _scales_program(kernel, name):
            found.append(name)
    return found


def _follows(axes: list[ast.expr], name: str) -> bool:
    return any(f"META['{name}']" in ast.unparse(axis) for axis in axes)


def _grid_literals(axes: list[ast.expr], value: int) -> list[ast.Call]:
    """Every `cdiv(…, value)` of a grid."""
    return [
        node
        for axis in axes
        for node in ast.walk(axis)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("cdiv")
        and len(node.args) == 2
        and _number(node.args[1]) == value
    ]


def _scales_program(kernel: ast.FunctionDef, name: str) -> bool:
    """Whether a parameter stands beside a program id in a product or quotient."""
    flow = Flow(kernel)
    return any(
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Mult | ast.FloorDiv | ast.Mod)
        and name in names_in(node)
        and calls(flow.inline(node), "program_id")
        for node in ast.walk(kernel)
    )


def set_block(launch: Launch, name: str, value: int) -> None:
    """Another block size at a launch, and in its grid where that is written as a number."""
    limit = _limit(launch.argument(name), launch)
    axes = launch.grid_axes()
    literals = _grid_literals(axes, _number(limit) or 0)
    assert limit is not None
    limit.value = value
    if literals and not _follows(axes, name):
        for call in literals:
            call.args[1] = parse(f"META['{name}']")
        launch.set_grid(axes)


def _scale(module: Module, name: str, key: str, factor: float) -> str:
    changed = 0
    for decorator in module.kernels[name].decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Config"):
                value = _number(keyword(node, key)) or (4 if key == "num_warps" else 3)
                new = int(value * factor)
                if new in (WARPS if key == "num_warps" else range(1, 8)):
                    node.keywords = [k for k in node.keywords if k.arg != key]
                    node.keywords.append(ast.keyword(arg=key, value=ast.Constant(value=new)))
                    changed += 1
    if not changed:
        raise NotApplicable("no configuration to change")
    return f"{key} of every configuration times {factor:g}"


REWRITE = Rewrite(
    "launch",
    (
        FindingKind.LATENCY,
        FindingKind.OCCUPANCY,
        FindingKind.TAIL,
        FindingKind.SPILLS,
        FindingKind.LAUNCH_BOUND,
        FindingKind.NARROW_ACCESS,
        FindingKind.LAUNCH_PARAMETERS,
    ),
    apply,
)
