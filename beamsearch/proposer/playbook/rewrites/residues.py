"""Positions are dealt out by remainder: `position % stride == 0` becomes a scalar test.

A gather that keeps only positions on a stride (a transposed convolution, an upsampling) computes
every lane and masks most away. Here a program owns the positions of one remainder in every
dimension: the test is the same for all its lanes, and what fails it is skipped.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

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
from beamsearch.proposer.playbook.rewrites.source import (
    Launch,
    NotApplicable,
    Rewrite,
    assigned_in,
    calls,
    copy,
    fresh,
    is_call,
    is_store,
    keyword,
    names_in,
    on_kernel,
    parse,
    replace,
    statements,
    substitute,
    uncast,
)
from kernel_profiling.profile import FindingKind

Dealt = dict[str, tuple[str, str]]
"""Digit -> its remainder's name and its step's."""


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
    dealt = {
        d.name: (fresh(kernel, f"{d.name}_class"), fresh(kernel, f"{d.name}_step"))
        for d in root.digits
    }
    digits = {name: digit for name, (digit, _) in shifted.items()}
    _scalar_tests(kernel, digits, stride, dealt)
    place(kernel, root, _head(kernel, root, stride, dealt))
    branch_on_scalars(kernel)
    host_stride = launch.on_host(stride)
    steps = " * ".join(f"triton.cdiv({extent}, {host_stride})" for extent in host_extents)
    launch.set_axis(
        root.axis,
        f"triton.cdiv({steps}, META['{root.block}']) * ({host_stride}) ** {len(root.digits)}",
    )
    names = ", ".join(dealt)
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
    kernel: ast.FunctionDef, digits: dict[str, str], stride: str, dealt: Dealt
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
                    return parse(f"({dealt[digits[name]][1]} + {scalar[name]} // {stride})")
            case ast.Assign([ast.Name(name), *_], value) if name in scalar:
                remainder = {digits[name]: parse(dealt[digits[name]][0])}
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


def _head(kernel: ast.FunctionDef, root: FlatIndex, stride: str, dealt: Dealt) -> list[str]:
    """Definitions of remainders, steps, digits and the flat index."""
    program, part, flat = (fresh(kernel, n) for n in ("program", "part", "steps"))
    below = [" * ".join([f"({stride})"] * i) or "1" for i in range(len(root.digits) + 1)]
    counts = [f"(({digit.extent} + {stride} - 1) // {stride})" for digit in root.digits[:-1]]
    remainders, places = zip(*dealt.values(), strict=True)
    steps = list(map(Digit, places, [*counts, ""]))
    whole = root.digits[-1].name
    for digit in reversed(root.digits[:-1]):
        whole = f"({whole}) * ({digit.extent}) + {digit.name}"
    return [
        f"{program} = {root.program}",
        f"{part} = {program} % ({below[-1]})",
        f"{flat} = {program} // ({below[-1]}) * {root.block} + tl.arange(0, {root.block})",
        *(
            f"{name} = {part} // ({under}) % ({stride})"
            for name, under in zip(remainders, below, strict=False)
        ),
        *digit_lines(steps, flat),
        *(f"{name} = {step} * {stride} + {own}" for name, (own, step) in dealt.items()),
        f"{root.name} = {whole}",
    ]


def branch_on_scalars(kernel: ast.FunctionDef) -> None:
    """Put loop bodies under the scalar parts of their masks."""
    _branch(kernel, kernel.body, set(), [])


def _branch(
    kernel: ast.FunctionDef, body: list[ast.stmt], outside: set[str], done: list[str]
) -> None:
    for node in list(body):
        if isinstance(node, ast.For):
            set_here = names_in(*kernel.body, context=ast.Store)
            before = set_here - names_in(node, context=ast.Store)
            _branch_loop(kernel, node, before | outside | names_in(node.target), done)
        elif isinstance(node, ast.If):
            _branch(kernel, node.body, outside, done)


def _branch_loop(
    kernel: ast.FunctionDef, loop: ast.For, available: set[str], done: list[str]
) -> None:
    flow = Flow(kernel)
    own = set(assigned_in(loop.body))
    known = available | flow.parameters | own
    terms = {
        text: term
        for text, term in _common_terms(loop, flow, known).items()
        if text not in done and flow.depends(term, names_in(loop.target) | own)
    }
    if terms:
        needed = flow.closure(names_in(*terms.values())) & own
        prelude = [
            s for s in loop.body if isinstance(s, ast.Assign) and names_in(s.targets[0]) & needed
        ]
        rest = [s for s in loop.body if s not in prelude]
        escaping = {n for n in names_in(*rest, context=ast.Store) if _escapes(kernel, rest, n)}
        if rest and not any(calls(s, "load") for s in prelude) and _Neutral(escaping).body(rest):
            condition = parse(" & ".join(f"({text})" for text in terms))
            for s in rest:
                replace(s, lambda node: _without(node, terms.keys()), inner_first=True)
            loop.body = [*prelude, ast.If(test=condition, body=rest, orelse=[])]
            return _branch(kernel, rest, known, [*done, *terms])
    return _branch(kernel, loop.body, known, done)


def _without(node: ast.AST, terms: Collection[str]) -> ast.expr | None:
    """A condition without what the branch has tested."""
    match node:
        case ast.BinOp(left, ast.BitAnd(), right):
            if ast.unparse(left) in terms:
                return right
            if ast.unparse(right) in terms:
                return left
    return None


def _common_terms(loop: ast.For, flow: Flow, known: set[str]) -> dict[str, ast.expr]:
    """Scalar parts that the masks of all masked vector loads under a loop have in common."""
    positions = {
        name
        for name, value in flow.definitions.items()
        if not isinstance(value, ast.Compare)
        and not (isinstance(value, ast.BinOp) and isinstance(value.op, ast.BitAnd))
    }
    common: dict[str, ast.expr] | None = None
    for call in calls(loop, "load"):
        mask = keyword(call, "mask")
        if mask is None:
            continue
        terms = {
            ast.unparse(t): t
            for t in parts(flow.inline(mask, keep=positions), ast.BitAnd)
            if not flow.is_vector(t) and names_in(t) - {"tl"} <= known and names_in(t)
        }
        common = terms if common is None else {k: t for k, t in common.items() if k in terms}
    return common or {}


def _escapes(kernel: ast.FunctionDef, rest: list[ast.stmt], name: str) -> bool:
    """Whether a name set in the rest of a body is read anywhere else, or carried around."""
    within = [n for s in rest for n in ast.walk(s)]
    inside = {id(n) for n in within}
    outside = [n for n in ast.walk(kernel) if id(n) not in inside]
    carried = [n.target for n in within if isinstance(n, ast.AugAssign)]
    return name in names_in(*carried) or any(
        isinstance(n, ast.Name) and n.id == name and not is_store(n) for n in outside
    )


class _Neutral:
    """Whether statements leave every carried name as it was where the masks are false.

    Every masked read under the loop has the terms of the branch in its mask (`_common_terms`), so
    it gives its `other` there: a product with 0 adds nothing, a maximum with -inf changes nothing.
    """

    def __init__(self, carried: set[str]) -> None:
        self.carried = carried
        self.zeros: set[str] = set()
        self.lowest: set[str] = set()

    def body(self, statements: list[ast.stmt]) -> bool:
        return all(map(self.statement, statements))

    def statement(self, s: ast.stmt) -> bool:
        """What the statement reads is remembered."""
        match s:
            case ast.For(target, _, body):
                return not names_in(target) & self.carried and self.body(body)
            case ast.If(_, body, orelse):
                return not orelse and self.body(body)
            case ast.AugAssign(_, sign, value):
                return isinstance(sign, ast.Add) and self.is_zero(value)
            case ast.Assign([ast.Name(name), *_], value):
                if name in self.carried and not self.keeps(value, name):
                    return False
                self.zeros |= {name} if self.is_zero(value) else set()
                self.lowest |= {name} if self.is_lowest(value) else set()
                return True
        return False

    def is_zero(self, node: ast.expr) -> bool:
        """Whether a value is 0 where the masks are false."""
        match uncast(node):
            case ast.BinOp(left, ast.Mult(), right):
                return self.is_zero(left) or self.is_zero(right)
            case inner:
                return _is_one_of(inner, self.zeros, "0", "0.0")

    def is_lowest(self, node: ast.expr) -> bool:
        """Whether a value is minus infinity where the masks are false."""
        return _is_one_of(uncast(node), self.lowest, "float('-inf')", "-float('inf')")

    def keeps(self, value: ast.expr, name: str) -> bool:
        """`name = tl.maximum(name, <lowest>)`, or a dot with a zero operand that adds to name."""
        if is_call(value, "dot"):
            third = value.args[2] if len(value.args) > 2 else keyword(value, "acc")
            own = isinstance(third, ast.Name) and third.id == name
            return own and any(map(self.is_zero, value.args[:2]))
        if is_call(value, "maximum"):
            first = value.args[0]
            own = isinstance(first, ast.Name) and first.id == name
            return own and self.is_lowest(value.args[1])
        return False


def _is_one_of(node: ast.expr, names: set[str], *others: str) -> bool:
    """Whether a node is one of the names, or a masked read that gives one of these elsewhere."""
    if isinstance(node, ast.Name):
        return node.id in names
    if not is_call(node, "load") or keyword(node, "mask") is None:
        return False
    other = keyword(node, "other")
    return other is not None and ast.unparse(other) in others


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
