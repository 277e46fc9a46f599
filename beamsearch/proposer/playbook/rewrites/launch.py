"""Launch parameters: warps, pipeline stages and block sizes, at the launch and in tuning lists."""

from __future__ import annotations

import ast
from collections.abc import Collection
from functools import partial

from beamsearch.proposer.playbook.rewrites.flow import Flow
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt
from beamsearch.proposer.playbook.rewrites.source import (
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
from kernel_profiling.profile import FindingKind

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
        near, far, stages, registers = _points(module, kernel, launches[0])
        results += _forms(source, name, [*near, *far, *stages, *registers])
    return results


def settings_of(source: str, launched: Collection[str] = ()) -> list[list[Result]]:
    """For each kernel that is launched once and not tuned by its author: its settings, one changed
    at a time, the likeliest first. `launched`: the kernels that the call at hand launches, where
    this is known; those for other shapes are left out."""
    try:
        module = Module(source)
    except NotApplicable:
        return []
    found = []
    for name, kernel, launches in module.launched():
        if launched and name not in launched:
            continue
        if len(launches) == 1 and len(kernel.decorator_list) == 1:
            near, far, stages, registers = _points(module, kernel, launches[0])
            found.append((name, _forms(source, name, [*near, *stages, *far, *registers])))
    if len(found) == 1:
        return [found[0][1]]
    return [[(f"{name}: {what}", form) for what, form in forms] for name, forms in found]


Point = dict[str, int]


def _forms(source: str, name: str, points: list[Point]) -> list[Result]:
    """The source with each of the settings."""
    results: list[Result] = []
    for point in _unique(points):
        results += attempt(source, partial(_set, name, point))
    return results


def _points(
    module: Module, kernel: ast.FunctionDef, launch: Launch
) -> tuple[list[Point], list[Point], list[Point], list[Point]]:
    """Settings to try: warps and blocks near those there are, further ones, stages, registers."""
    warps = _option(module, launch, "num_warps") or 4
    near: list[Point] = [{"num_warps": w} for w in (warps * 2, warps // 2) if w in WARPS]
    far: list[Point] = [{"num_warps": w} for w in (warps * 4, warps // 4) if w in WARPS]
    blocks = block_parameters(module, kernel, launch)
    for name in blocks:
        limit = _limit(argument(kernel, launch, name), module, launch)
        assert limit is not None and isinstance(limit.value, int)
        value = limit.value
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
    stages: list[Point] = []
    # Loads are pipelined by it where they feed a matrix product in a loop, and nowhere else.
    if any(calls(n, "dot", "dot_scaled") for n in ast.walk(kernel) if isinstance(n, ast.For)):
        now = _option(module, launch, "num_stages") or 3
        stages = [{"num_stages": s} for s in STAGES if s != now]
    limited = keyword(launch.call, "maxnreg") is not None
    registers: list[Point] = [] if limited else [{"maxnreg": n} for n in (64, 128, 255)]
    return near, far, stages, registers


def _unique(points: list[Point]) -> list[Point]:
    return [point for i, point in enumerate(points) if point not in points[:i]]


def _set(name: str, point: Point, module: Module) -> str:
    kernel, launch = module.kernels[name], module.launches[name][0]
    for key, value in point.items():
        if key in ("num_warps", "num_stages", "maxnreg"):
            given = keyword(launch.call, key)
            named = _limit(given, module, launch) if isinstance(given, ast.Name) else None
            if named is not None:
                named.value = value
            else:
                set_argument(kernel, launch, key, ast.Constant(value=value))
        else:
            set_block(module, kernel, launch, key, value)
    return ", ".join(f"{key} {value}" for key, value in point.items())


def _constant(node: ast.expr | None) -> int | None:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, int) else None


def _option(module: Module, launch: Launch, name: str) -> int | None:
    """What a launch gives for one of Triton's own parameters."""
    limit = _limit(keyword(launch.call, name), module, launch)
    return limit.value if limit is not None and isinstance(limit.value, int) else None


def _limit(node: ast.expr | None, module: Module, launch: Launch) -> ast.Constant | None:
    """The constant that says how large a block is: all of it, the limit of its min, or what the one
    assignment of a name gives it, in the host function or the module."""
    if isinstance(node, ast.Name):
        node = _assigned(node.id, module, launch)
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("min", "max"):
        if ast.unparse(node.func) == "max":
            return next((found for a in node.args if (found := _limit_of_min(a))), None)
        return _limit_of_min(node)
    return node if isinstance(node, ast.Constant) and type(node.value) is int else None


def _assigned(name: str, module: Module, launch: Launch) -> ast.expr | None:
    """What a name is given, where that happens once in all."""
    stores = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store)
    ]
    if len(stores) != 1 or any(
        a.arg == name for a in ast.walk(launch.function.args) if isinstance(a, ast.arg)
    ):
        return None
    for scope in (launch.function, module.tree):
        for statement in scope.body:
            if isinstance(statement, ast.Assign) and statement.targets == stores:
                return statement.value
    return None


def _limit_of_min(node: ast.expr) -> ast.Constant | None:
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "min":
        return next((a for a in node.args if isinstance(a, ast.Constant)), None)
    return None


def block_parameters(module: Module, kernel: ast.FunctionDef, launch: Launch) -> list[str]:
    """Constexpr parameters that can be changed at the launch, the grid following along."""
    found = []
    flow = Flow(kernel)
    for name in sorted(constexprs(kernel)):
        given = argument(kernel, launch, name)
        limit = _limit(given, module, launch)
        if limit is None or not isinstance(limit.value, int) or not _is_block(kernel, name):
            continue
        value = limit.value
        try:
            axes = grid_axes(launch)
        except NotApplicable:
            continue
        follows = any(f"META['{name}']" in ast.unparse(axis) for axis in axes)
        if follows or (isinstance(given, ast.Name) and _reads(launch.function, given.id) > 1):
            found.append(name)  # the grid is made from it, or the host makes it from the name
        elif _grid_literals(axes, value):
            limits = [
                _limit(argument(kernel, launch, other), module, launch)
                for other in constexprs(kernel) - {name}
            ]
            if not any(other is not None and other.value == value for other in limits):
                found.append(name)
        elif not _scales_program(kernel, flow, name):
            found.append(name)
    return found


def _reads(function: ast.AST, name: str) -> int:
    """How often a name is read."""
    return sum(
        isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Load)
        for node in ast.walk(function)
    )


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


def set_block(
    module: Module, kernel: ast.FunctionDef, launch: Launch, name: str, value: int
) -> None:
    """Another block size at a launch, and in its grid where that is written as a number."""
    limit = _limit(argument(kernel, launch, name), module, launch)
    assert limit is not None and isinstance(limit.value, int)
    old, limit.value = limit.value, value
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
        results += attempt(source, partial(_scale_configs, name, key, factor))
    return results


def _scale_configs(name: str, key: str, factor: float, module: Module) -> str:
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
