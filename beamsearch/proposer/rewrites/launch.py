"""Launch parameters: warps, pipeline stages and block sizes, at the launch and in tuning lists."""

from __future__ import annotations

import ast

from beamsearch.proposer.rewrites.flow import Flow
from beamsearch.proposer.rewrites.hints import Hints
from beamsearch.proposer.rewrites.interface import Result, Rewrite, attempt
from beamsearch.proposer.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    argument,
    calls,
    constexprs,
    grid_axes,
    keyword,
    names_in,
    parse,
    set_argument,
    set_grid,
)
from profiling.profile import FindingKind

WARPS = (1, 2, 4, 8, 16)
STAGES = (1, 2, 3, 4, 5)
FACTORS = (2, 0.5, 4, 0.25)
"""A block size is halved, doubled and quadrupled; all sizes stay powers of two."""
NEAR = (0.5, 2)
LARGEST = 16384


def apply(source: str, hints: Hints) -> list[Result]:
    """One parameter changed at a time, then block and warps together."""
    results: list[Result] = []
    try:
        module = Module(source)
    except NotApplicable:
        return []
    for name, kernel, launches in module.launched():
        results += _tuned(source, name, kernel)
        if len(launches) != 1 or len(kernel.decorator_list) != 1:
            continue
        points = _points(module, kernel, launches[0])
        for point in points:
            results += attempt(source, lambda m, n=name, p=point: _set(m, n, p))  # type: ignore[misc]
    return results


Point = dict[str, int]


def _points(module: Module, kernel: ast.FunctionDef, launch: Launch) -> list[Point]:
    """Settings to try, nearest first."""
    warps = _constant(keyword(launch.call, "num_warps")) or 4
    points: list[Point] = []
    near: list[Point] = [{"num_warps": w} for w in (warps * 2, warps // 2) if w in WARPS]
    far: list[Point] = [{"num_warps": w} for w in (warps * 4, warps // 4) if w in WARPS]
    blocks = block_parameters(module, kernel, launch)
    for name in blocks:
        value = _block_value(argument(kernel, launch, name))
        assert value is not None
        for factor in FACTORS:
            new = int(value * factor)
            if not 1 <= new <= LARGEST:
                continue
            step: Point = {name: new}
            wide = int(warps * factor)
            both: list[Point] = [{**step, "num_warps": wide}] if wide in WARPS else []
            if factor in NEAR:
                near += [*both, step]
            else:
                far += [step, *both]
    points += near + far
    if any(isinstance(n, ast.For) for n in ast.walk(kernel)):
        stages = _constant(keyword(launch.call, "num_stages")) or 3
        points += [{"num_stages": s} for s in STAGES if s != stages]
    points += [{"maxnreg": n} for n in (64, 128, 255) if keyword(launch.call, "maxnreg") is None]
    unique: list[Point] = []
    for point in points:
        if point not in unique:
            unique.append(point)
    return unique


def _set(module: Module, name: str, point: Point) -> str:
    kernel, launch = module.kernels[name], module.launches[name][0]
    for key, value in point.items():
        if key in ("num_warps", "num_stages", "maxnreg"):
            set_argument(kernel, launch, key, ast.Constant(value=value))
        else:
            set_block(kernel, launch, key, value)
    return ", ".join(f"{key} {value}" for key, value in point.items())


def _constant(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _block_value(node: ast.expr | None) -> int | None:
    """An integer, or the limit of a `min(…, limit)`."""
    limit = _limit(node)
    return limit.value if limit is not None and isinstance(limit.value, int) else None


def _limit(node: ast.expr | None) -> ast.Constant | None:
    """The constant that says how large a block is: all of it, or the limit of its min."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("min", "max"):
        if ast.unparse(node.func) == "max":
            return next((found for a in node.args if (found := _limit_of_min(a))), None)
        return _limit_of_min(node)
    return node if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _limit_of_min(node: ast.expr) -> ast.Constant | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "min":
        return next((a for a in node.args if isinstance(a, ast.Constant)), None)
    return None


def block_parameters(module: Module, kernel: ast.FunctionDef, launch: Launch) -> list[str]:
    """Constexpr parameters that can be changed at the launch, the grid following along."""
    found = []
    flow = Flow(kernel)
    for name in sorted(constexprs(kernel)):
        value = _block_value(argument(kernel, launch, name))
        if value is None or not _is_block(kernel, name):
            continue
        try:
            axes = grid_axes(launch)
        except NotApplicable:
            continue
        if any(f"META['{name}']" in ast.unparse(axis) for axis in axes):
            found.append(name)
        elif _grid_literals(axes, value):
            others = [
                other
                for other in constexprs(kernel) - {name}
                if _block_value(argument(kernel, launch, other)) == value
            ]
            if not others:
                found.append(name)
        elif not _scales_program(kernel, flow, name):
            found.append(name)
    return found


def _is_block(kernel: ast.FunctionDef, name: str) -> bool:
    """Whether a parameter is the length of an axis, or of an unrolled strip."""
    for call in calls(kernel, "arange", "static_range"):
        if any(isinstance(a, ast.Name) and a.id == name for a in call.args):
            return True
    return False


def _grid_literals(axes: list[ast.expr], value: int) -> list[ast.Call]:
    """Every `cdiv(…, value)` of a grid."""
    return [
        node
        for axis in axes
        for node in ast.walk(axis)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func).endswith("cdiv")
        and len(node.args) == 2
        and _constant(node.args[1]) == value
    ]


def _scales_program(kernel: ast.FunctionDef, flow: Flow, name: str) -> bool:
    """Whether a parameter stands beside a program id in a product or quotient."""
    for node in ast.walk(kernel):
        if not isinstance(node, ast.BinOp) or not isinstance(
            node.op, ast.Mult | ast.FloorDiv | ast.Mod
        ):
            continue
        if name in names_in(node) and calls(flow.inline(node), "program_id"):
            return True
    return False


def set_block(kernel: ast.FunctionDef, launch: Launch, name: str, value: int) -> None:
    """Another block size at a launch, and in its grid where that is written as a number."""
    given = argument(kernel, launch, name)
    old = _block_value(given)
    assert old is not None and given is not None
    limit = _limit(given)
    if isinstance(given, ast.Call) and limit is not None:
        limit.value = value
    else:
        set_argument(kernel, launch, name, ast.Constant(value=value))
    axes = grid_axes(launch)
    literals = _grid_literals(axes, old)
    if literals and not any(f"META['{name}']" in ast.unparse(axis) for axis in axes):
        for call in literals:
            call.args[1] = parse(f"META['{name}']")
        set_grid(launch, axes)


def _tuned(source: str, name: str, kernel: ast.FunctionDef) -> list[Result]:
    """More configurations for an autotuned kernel: each list scaled."""
    tuned = any("autotune" in ast.unparse(d) for d in kernel.decorator_list)
    if not tuned:
        return []
    results: list[Result] = []
    for key, factor in (("num_warps", 2), ("num_warps", 0.5), ("num_stages", 2)):
        results += attempt(source, lambda m, k=key, f=factor: _scale_configs(m, name, k, f))  # type: ignore[misc]
    return results


def _scale_configs(module: Module, name: str, key: str, factor: float) -> str:
    changed = 0
    for decorator in module.kernels[name].decorator_list:
        for node in ast.walk(decorator):
            if isinstance(node, ast.Call) and ast.unparse(node.func).endswith("Config"):
                value = _constant(keyword(node, key)) or (4 if key == "num_warps" else 3)
                new = int(value * factor)
                allowed = WARPS if key == "num_warps" else range(1, 8)
                if new not in allowed:
                    continue
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
    ),
    apply,
)
