"""Positions are dealt out by remainder: `position % stride == 0` becomes a scalar test.

A gather that keeps only positions on a stride (a transposed convolution, an upsampling) computes
every lane and masks most away. Here a program owns the positions of one remainder in every
dimension: the test is the same for all its lanes, and what fails it is skipped.
"""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.digits import (
    Digit,
    FlatIndex,
    bound_of,
    check_grid,
    rows_on_host,
    without,
)
from beamsearch.proposer.playbook.rewrites.flow import (
    Flow,
    conjuncts,
    factors,
    product,
)
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt_kernel
from beamsearch.proposer.playbook.rewrites.retile import (
    digit_lines,
    place,
    prepare,
    replace_compares,
)
from beamsearch.proposer.playbook.rewrites.skip import branch_on_scalars
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    Module,
    NotApplicable,
    Substitute,
    calls,
    copy,
    fresh,
    host_value,
    is_call,
    keyword,
    names_in,
    parse,
    set_grid,
)
from kernel_profiling.profile import FindingKind


def apply(source: str, hints: Hints) -> list[Result]:
    """The one form: every dimension split."""
    return attempt_kernel(source, _split)


def _split(_: Module, kernel: ast.FunctionDef, launch: Launch) -> str:
    root = prepare(kernel)
    compares, total = bound_of(kernel, root.name)
    axes, host_total = check_grid(kernel, launch, root, total)
    last = without(factors(parse(total)), root.inner(len(root.digits) - 1))
    last_host, exact = rows_on_host(kernel, launch, host_total, root.inner(len(root.digits) - 1))
    if last is None or not exact:
        raise NotApplicable("the last digit's extent is not known")
    extents = [d.extent or product(last) for d in root.digits]
    strides = _strides(kernel, root)
    stride = next(iter(strides.values()))
    if len(set(strides.values())) != 1 or len(strides) != len(root.digits):
        raise NotApplicable("not every digit is tested against one stride")
    if names_in(parse(stride)) - Flow(kernel).parameters:
        raise NotApplicable("the stride is no parameter")
    replace_compares(
        kernel,
        compares,
        " & ".join(f"({d.name} < {e})" for d, e in zip(root.digits, extents, strict=True)),
    )
    classes = {d.name: fresh(kernel, f"{d.name}_class") for d in root.digits}
    places = {d.name: fresh(kernel, f"{d.name}_step") for d in root.digits}
    _scalar_tests(kernel, stride, classes, places)
    place(kernel, root, _head(kernel, root, extents, stride, classes, places))
    branch_on_scalars(kernel)
    host_extents = [host_value(kernel, launch, parse(e)) for e in extents[:-1]] + [last_host]
    host_stride = ast.unparse(host_value(kernel, launch, parse(stride)))
    steps = " * ".join(f"triton.cdiv({ast.unparse(e)}, {host_stride})" for e in host_extents)
    number = len(root.digits)
    axes[root.axis] = parse(
        f"triton.cdiv({steps}, META['{root.block}']) * ({host_stride}) ** {number}"
    )
    set_grid(launch, axes)
    names = ", ".join(d.name for d in root.digits)
    return (
        f"{names} of {kernel.name} split by remainder of {stride}; what is off the stride skipped"
    )


def _strides(kernel: ast.FunctionDef, root: FlatIndex) -> dict[str, str]:
    """Digit -> the stride its shifted position is tested against."""
    flow = Flow(kernel)
    digits = {d.name for d in root.digits}
    found: dict[str, str] = {}
    for name, value in flow.definitions.items():
        own = names_in(value) & digits
        for node in ast.walk(kernel):
            if _is_test(node, name) and len(own) == 1 and _is_shift(value, own):
                assert isinstance(node, ast.Compare) and isinstance(node.left, ast.BinOp)
                stride = ast.unparse(node.left.right)
                if found.setdefault(next(iter(own)), stride) != stride:
                    raise NotApplicable("two strides")
    if not found:
        raise NotApplicable("no test of a position against a stride")
    return found


def _is_test(node: ast.AST, name: str) -> bool:
    """Whether a node is `name % … == 0`."""
    return (
        isinstance(node, ast.Compare)
        and isinstance(node.left, ast.BinOp)
        and isinstance(node.left.op, ast.Mod)
        and isinstance(node.left.left, ast.Name)
        and node.left.left.id == name
        and isinstance(node.ops[0], ast.Eq)
        and isinstance(node.comparators[0], ast.Constant)
        and node.comparators[0].value == 0
    )


def _is_shift(value: ast.expr, digit: set[str]) -> bool:
    """Whether an expression is the digit plus or minus something without it."""
    if isinstance(value, ast.Name):
        return value.id in digit
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Add):
        left, right = names_in(value.left) & digit, names_in(value.right) & digit
        return _is_shift(value.left if left else value.right, digit) and not (left and right)
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Sub):
        return _is_shift(value.left, digit) and not names_in(value.right) & digit
    return False


def _scalar_tests(
    kernel: ast.FunctionDef, stride: str, classes: dict[str, str], places: dict[str, str]
) -> None:
    """Tests and quotients of shifted positions on their remainders instead."""
    flow = Flow(kernel)
    shifted: dict[str, str] = {}
    for name, value in flow.definitions.items():
        own = names_in(value) & set(classes)
        tested = any(_is_test(node, name) for node in ast.walk(kernel))
        if tested and len(own) == 1 and _is_shift(value, own):
            shifted[name] = next(iter(own))
    _check_masks(kernel, flow, set(shifted))
    scalar = {name: fresh(kernel, f"{name}_class") for name in shifted}

    class Rewriter(ast.NodeTransformer):
        def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
            self.generic_visit(node)
            left = node.left
            if not (isinstance(left, ast.Name) and left.id in scalar):
                return node
            if ast.unparse(node.right) != stride:
                return node
            if isinstance(node.op, ast.Mod):
                node.left = ast.Name(id=scalar[left.id], ctx=ast.Load())
            elif isinstance(node.op, ast.FloorDiv):
                step = places[shifted[left.id]]
                return parse(f"({step} + {scalar[left.id]} // {stride})")
            return node

        def visit_Assign(self, node: ast.Assign) -> ast.AST | list[ast.stmt]:
            target = node.targets[0]
            if isinstance(target, ast.Name) and target.id in scalar:
                digit = shifted[target.id]
                swap = {digit: ast.Name(id=classes[digit], ctx=ast.Load())}
                value = Substitute(swap).visit(copy(node.value))
                new = ast.Assign(
                    targets=[ast.Name(id=scalar[target.id], ctx=ast.Store())], value=value
                )
                return [node, new]
            self.generic_visit(node)
            return node

    Rewriter().visit(kernel)


def _check_masks(kernel: ast.FunctionDef, flow: Flow, shifted: set[str]) -> None:
    """Quotients are right only on the stride: every read through one must be masked to it."""
    for call in calls(kernel, "load", "store"):
        reached = flow.closure(names_in(call.args[0])) & shifted
        if not reached:
            continue
        if is_call(call, "store"):
            raise NotApplicable("a store through a quotient")
        mask = keyword(call, "mask")
        tests = [] if mask is None else conjuncts(flow.inline(mask, keep=shifted))
        for name in reached:
            if not any(_is_test(t, name) for t in tests):
                raise NotApplicable("a read off the stride is not masked")


def _head(
    kernel: ast.FunctionDef,
    root: FlatIndex,
    extents: list[str],
    stride: str,
    classes: dict[str, str],
    places: dict[str, str],
) -> str:
    """Definitions of remainders, steps, digits and the flat index."""
    program, part, flat = (fresh(kernel, n) for n in ("program", "part", "steps"))
    number = len(root.digits)
    every = " * ".join([f"({stride})"] * number)
    lines = [
        f"{program} = {root.program}",
        f"{part} = {program} % ({every})",
        f"{flat} = {program} // ({every}) * {root.block} + tl.arange(0, {root.block})",
    ]
    for i, digit in enumerate(root.digits):
        below = " * ".join([f"({stride})"] * i) or "1"
        lines.append(f"{classes[digit.name]} = {part} // ({below}) % ({stride})")
    stepped = FlatIndex(flat, root.axis, root.program, root.block)
    for digit, extent in zip(root.digits, extents, strict=True):
        count = f"(({extent} + {stride} - 1) // {stride})"
        stepped.digits.append(Digit(places[digit.name], count))
    stepped.digits[-1].extent = None
    lines += digit_lines(stepped, 0, flat)
    for digit in root.digits:
        lines.append(f"{digit.name} = {places[digit.name]} * {stride} + {classes[digit.name]}")
    whole = root.digits[-1].name
    for digit, extent in zip(reversed(root.digits[:-1]), reversed(extents[:-1]), strict=True):
        whole = f"({whole}) * ({extent}) + {digit.name}"
    lines.append(f"{root.name} = {whole}")
    return "\n".join(lines)


REWRITE = Rewrite(
    "remainders",
    (
        FindingKind.ISSUE_BOUND,
        FindingKind.DIVERGENCE,
        FindingKind.INTEGER_OVERHEAD,
        FindingKind.IDLE_MATRIX_UNITS,
    ),
    apply,
)
