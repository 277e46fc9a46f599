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
    digit_lines,
    place,
    prepare,
    replace_compares,
    rows_on_host,
    without,
)
from beamsearch.proposer.playbook.rewrites.flow import Flow, factors, parts, product
from beamsearch.proposer.playbook.rewrites.skip import branch_on_scalars
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    calls,
    copy,
    fresh,
    is_call,
    keyword,
    names_in,
    on_kernel,
    parse,
    replace,
    statements,
    substitute,
)
from kernel_profiling.profile import FindingKind


def _split(launch: Launch) -> str:
    """Every dimension split."""
    kernel = launch.kernel
    root = prepare(launch)
    number = len(root.digits) - 1
    last = without(factors(parse(root.total)), root.inner(number))
    last_host, exact = rows_on_host(launch, root, number)
    if last is None or not exact:
        raise NotApplicable("the last digit's extent is not known")
    host_extents = [launch.on_host(digit.extent) for digit in root.digits[:-1]] + [last_host]
    root.digits[-1].extent = product(last)
    shifted = _shifted(kernel, {digit.name for digit in root.digits})
    stride, *others = {stride for _, stride in shifted.values()}
    if others or {name for name, _ in shifted.values()} != {digit.name for digit in root.digits}:
        raise NotApplicable("not every digit is tested against one stride")
    if names_in(parse(stride)) - Flow(kernel).parameters:
        raise NotApplicable("the stride is no parameter")
    inside = " & ".join(f"({digit.name} < {digit.extent})" for digit in root.digits)
    replace_compares(launch, root, inside)
    classes = {d.name: fresh(kernel, f"{d.name}_class") for d in root.digits}
    places = {d.name: fresh(kernel, f"{d.name}_step") for d in root.digits}
    digits = {name: digit for name, (digit, _) in shifted.items()}
    _scalar_tests(kernel, digits, stride, classes, places)
    place(kernel, root, _head(kernel, root, stride, classes, places))
    branch_on_scalars(kernel)
    host_stride = launch.on_host(stride)
    steps = " * ".join(f"triton.cdiv({extent}, {host_stride})" for extent in host_extents)
    launch.set_axis(
        root.axis,
        f"triton.cdiv({steps}, META['{root.block}']) * ({host_stride}) ** {len(root.digits)}",
    )
    names = ", ".join(classes)
    return (
        f"{names} of {kernel.name} split by remainder of {stride}; what is off the stride skipped"
    )


def _shifted(kernel: ast.FunctionDef, digits: set[str]) -> dict[str, tuple[str, str]]:
    """Name of a shifted position that is tested -> its digit, and the stride of the test."""
    found: dict[str, tuple[str, str]] = {}
    tests = [test for node in ast.walk(kernel) if (test := _tested(node))]
    for name, value in Flow(kernel).definitions.items():
        own = names_in(value) & digits
        if len(own) == 1 and _is_shift(value, own):
            for tested, stride in tests:
                if tested == name and found.setdefault(name, (min(own), stride))[1] != stride:
                    raise NotApplicable("two strides")
    if not found:
        raise NotApplicable("no test of a position against a stride")
    return found


def _tested(node: ast.AST) -> tuple[str, str] | None:
    """What `name % stride == 0` tests, and against what; None for anything else."""
    match node:
        case ast.Compare(
            ast.BinOp(ast.Name(name), ast.Mod(), stride), [ast.Eq(), *_], [ast.Constant(0), *_]
        ):
            return name, ast.unparse(stride)
    return None


def _is_shift(value: ast.expr, digit: set[str]) -> bool:
    """Whether an expression is the digit plus or minus something without it."""
    match value:
        case ast.Name(name):
            return name in digit
        case ast.BinOp(left, ast.Add() | ast.Sub() as sign, right):
            if isinstance(sign, ast.Add) and not names_in(left) & digit:
                left, right = right, left
            return _is_shift(left, digit) and not names_in(right) & digit
    return False


def _scalar_tests(
    kernel: ast.FunctionDef,
    digits: dict[str, str],
    stride: str,
    classes: dict[str, str],
    places: dict[str, str],
) -> None:
    """Tests and quotients of shifted positions (`digits` says of what) on their remainders."""
    _check_masks(kernel, set(digits))
    scalar = {name: fresh(kernel, f"{name}_class") for name in digits}

    def on_scalars(node: ast.AST) -> ast.expr | list[ast.stmt] | None:
        match node:
            case ast.BinOp(ast.Name(name), ast.Mod(), by) if name in scalar:
                if ast.unparse(by) == stride:
                    node.left = parse(scalar[name])
            case ast.BinOp(ast.Name(name), ast.FloorDiv(), by) if name in scalar:
                if ast.unparse(by) == stride:
                    return parse(f"({places[digits[name]]} + {scalar[name]} // {stride})")
            case ast.Assign([ast.Name(name), *_], value) if name in scalar:
                remainder = {digits[name]: parse(classes[digits[name]])}
                class_of = ast.unparse(substitute(copy(value), remainder))
                return [node, *statements(f"{scalar[name]} = {class_of}")]
        return None

    replace(kernel, on_scalars)


def _check_masks(kernel: ast.FunctionDef, shifted: set[str]) -> None:
    """Quotients are right only on the stride: every read through one must be masked to it."""
    flow = Flow(kernel)
    for call in calls(kernel, "load", "store"):
        reached = flow.closure(names_in(call.args[0])) & shifted
        if not reached:
            continue
        if is_call(call, "store"):
            raise NotApplicable("a store through a quotient")
        mask = keyword(call, "mask")
        conditions = parts(flow.inline(mask, keep=shifted), ast.BitAnd) if mask else []
        if reached - {test[0] for part in conditions if (test := _tested(part))}:
            raise NotApplicable("a read off the stride is not masked")


def _head(
    kernel: ast.FunctionDef,
    root: FlatIndex,
    stride: str,
    classes: dict[str, str],
    places: dict[str, str],
) -> list[str]:
    """Definitions of remainders, steps, digits and the flat index."""
    program, part, flat = (fresh(kernel, n) for n in ("program", "part", "steps"))
    below = [" * ".join([f"({stride})"] * i) or "1" for i in range(len(root.digits) + 1)]
    counts = [f"(({digit.extent} + {stride} - 1) // {stride})" for digit in root.digits[:-1]]
    steps = list(map(Digit, places.values(), [*counts, ""]))
    whole = root.digits[-1].name
    for digit in reversed(root.digits[:-1]):
        whole = f"({whole}) * ({digit.extent}) + {digit.name}"
    return [
        f"{program} = {root.program}",
        f"{part} = {program} % ({below[-1]})",
        f"{flat} = {program} // ({below[-1]}) * {root.block} + tl.arange(0, {root.block})",
        *(
            f"{name} = {part} // ({under}) % ({stride})"
            for name, under in zip(classes.values(), below, strict=False)
        ),
        *digit_lines(steps, flat),
        *(f"{name} = {places[name]} * {stride} + {classes[name]}" for name in classes),
        f"{root.name} = {whole}",
    ]


REWRITE = Rewrite(
    "remainders",
    (
        FindingKind.ISSUE_BOUND,
        FindingKind.DIVERGENCE,
        FindingKind.INTEGER_OVERHEAD,
        FindingKind.IDLE_MATRIX_UNITS,
    ),
    on_kernel(_split),
)
