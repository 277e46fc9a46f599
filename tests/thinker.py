"""A small scripted thinker: answers a prompt from nothing but the prompt's text.

It finds what it needs under the prompt's headings, as a model would, and refuses a prompt that
lacks it. Its kernels are rewrites of the kernel it reads there, and one written by hand.
"""

from __future__ import annotations

import ast
import difflib
import json
import re
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path

import triton.language

TRITON_NAMES = sorted(dir(triton.language))
COMMON = ("The problem", "Answer")
OF_A_KERNEL = ("Where the kernel stands", "What the profile means", "What was tried")


class PromptBroken(Exception):
    """The prompt does not hold what an answer needs."""


def think(prompt: str) -> str:
    """The reply to a prompt. Raises PromptBroken."""
    sections = read_sections(prompt)
    for heading in COMMON:
        _section(sections, heading)
    if "you are an engineer who repairs" in sections[""].lower():
        return _repair(sections)
    if "you are an engineer who reviews" in sections[""].lower():
        return _review(sections)
    if "write a first kernel" in sections[""].lower():
        return _first(sections)
    for heading in OF_A_KERNEL:
        _section(sections, heading)
    if "Your direction" in sections:
        return _diagnose(sections)
    if any(heading.startswith("The kernel to rewrite") for heading in sections):
        return _write(sections)
    if "What came of it" in sections:
        return _reflect(sections)
    raise PromptBroken("no question is asked")


def read_sections(prompt: str) -> dict[str, str]:
    """Heading -> text; headings inside fences are text, not headings."""
    sections: dict[str, str] = {}
    heading, fence = "", ""
    for line in prompt.splitlines():
        mark = re.match(r"`{3,}", line)
        if mark and not fence:
            fence = mark[0]
        elif fence and line.strip() == fence:
            fence = ""
        elif not fence and line.startswith("## "):
            heading = line[3:].strip()
            continue
        sections[heading] = sections.get(heading, "") + line + "\n"
    if fence:
        raise PromptBroken(f"a fence under {heading!r} is not closed")
    return sections


def _section(sections: dict[str, str], start: str) -> str:
    for heading, text in sections.items():
        if heading.startswith(start):
            return text
    raise PromptBroken(f"no section {start!r}")


def _find(pattern: str, text: str, what: str) -> re.Match[str]:
    match = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    if match is None:
        raise PromptBroken(f"no {what}")
    return match


def _diagnose(sections: dict[str, str]) -> str:
    kind = _find(r"`(\w+)`", _section(sections, "Your direction"), "direction")[1]
    _find(r"def kernel_function", _section(sections, "The kernel, `"), "kernel")
    _section(sections, "What a kernel is")
    findings = _section(sections, "What the profile means")
    bound = r"\((?:at most ~?([\d.e+]+) times as fast)?[^\n]*?\)"
    mine = rf"^\d+\. \*\*{kind}\*\* {bound}: ([^\n]*)\n((?:   - .*\n)*)"
    match = re.search(mine, findings, re.MULTILINE)
    evidence = re.findall(r"   - (.*)", match[3]) if match else []
    answer = {
        "bottleneck": kind,
        "cause": match[2] if match else "the direction was given without a finding",
        "evidence": evidence,
        "plan": "specialise the kernel on its sizes and try other launch parameters",
        "expected_speedup": min(1.5, float(match[1])) if match and match[1] else None,
        "predicted": [{"finding": kind, "bound_after": 1.0}] if match else [],
    }
    return f"Here is what I see.\n\n```json\n{json.dumps(answer, indent=2)}\n```\n"


def _tried(section: str, parent: str) -> list[str]:
    """The lines of what was made from a kernel before."""
    _, _, after = section.partition(f"From `{parent}`:\n")
    return list(takewhile(lambda line: line.startswith("- "), after.splitlines()))


def _write(sections: dict[str, str]) -> str:
    wanted = _find(r"(?:Write (one|\d+) kernels?)", sections[""], "number of kernels")[1]
    source = _find(
        r"^(`{3,})python\n(.*?)^\1$", _section(sections, "The kernel to rewrite"), "kernel"
    )[2]
    plan = _section(sections, "The plan")
    _find(r"^- Change: \S", plan, "plan")
    direction = _find(r"Direction `(\w+)`", plan, "direction")[1]
    contract = _section(sections, "What a kernel is")
    listed = _find(r"can be bound, no other: (.*?)\.$", contract, "names a kernel may ask for")[1]
    names = re.findall(r"`(\w+)`", listed)
    _check_bindable(source, names)
    heading = next(h for h in sections if h.startswith("The kernel to rewrite"))
    parent = _find(r"`(.*)`", heading, "name of the kernel")[1]
    tried = _tried(_section(sections, "What was tried"), parent)
    parts = []
    candidates = list(ideas(source, direction))
    # Where index arithmetic is the direction, the rewrite that answers it comes first.
    place = 1 if direction == "integer_overhead" else 0
    candidates[place:place] = _by_hand(sections, source)
    for description, variant in candidates:
        if any(description in line for line in tried):
            continue
        parts.append(f"{description}\n```python\n{variant}\n```\n")
        if len(parts) == (1 if wanted == "one" else int(wanted)):
            break
    return "\n".join(parts) or "I have no other idea for this kernel.\n"


def _by_hand(sections: dict[str, str], source: str) -> list[tuple[str, str]]:
    """A kernel written beforehand, for the one problem that has one, until it is the parent."""
    if "nn.MaxPool3d(" not in _section(sections, "The problem") or "tl.gather" in source:
        return []
    kernel = Path(__file__).parent / "kernels" / "max_pool3d_rows.py"
    return [("Rows are read whole, and the window is taken apart by axis.", kernel.read_text())]


def _check_bindable(source: str, names: list[str]) -> None:
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "kernel_function":
            lacking = {argument.arg for argument in node.args.args} - set(names)
            if lacking:
                raise PromptBroken(f"the kernel asks for {lacking}, which the prompt does not list")


def _reflect(sections: dict[str, str]) -> str:
    _find(r"def kernel_function", _section(sections, "The kernel that was changed"), "kernel")
    _find(r"^- Change: \S", _section(sections, "The plan"), "plan")
    trials = re.findall(
        r"^### `([^`]+)`: (.*?)\n\n- Verdict: (\w+)(?:[^\n]*)\n(?:- Time: ([^\n]*))?",
        _section(sections, "What came of it"),
        re.MULTILINE,
    )
    if not trials and "No kernel came of it" not in _section(sections, "What came of it"):
        raise PromptBroken("no trials")
    told = [f"{name}: {verdict} {time}".strip() for name, _, verdict, time in trials]
    answer = {
        "summary": "; ".join(told) or "nothing was written",
        "lessons": [f"{what}: {time}" for _, what, _, time in trials if "times as fast" in time],
        "patterns_to_avoid": [what for _, what, verdict, _ in trials if verdict == "wrong"],
    }
    return json.dumps(answer)


def _repair(sections: dict[str, str]) -> str:
    """A patch that sets right the name which the error says Triton does not know."""
    source = _find(
        r"^(`{3,})python\n(.*?)^\1$", _section(sections, "The kernel that failed"), "kernel"
    )[2]
    _find(r"^- Change: \S", _section(sections, "The plan"), "plan")
    if any(title.startswith("What it changes in") for title in sections):
        _find(r"^\+ *\S", _section(sections, "What it changes in"), "change")
    else:
        _find(r"def kernel_function", _section(sections, "The correct kernel"), "correct kernel")
    _section(sections, "What a kernel is")
    error = _section(sections, "What is wrong with it")
    _find(r"^- Verdict: \w+ at \w+: \S", error, "verdict")
    unknown = re.search(r"no attribute '(\w+)'", error)
    near = difflib.get_close_matches(unknown[1], TRITON_NAMES, n=1) if unknown else []
    lines = [line for line in source.splitlines() if near and f"tl.{unknown[1]}(" in line]
    if not lines:
        return "I cannot see what is wrong.\n"
    right = lines[0].replace(f"tl.{unknown[1]}(", f"tl.{near[0]}(", 1)
    patch = f"<<<<<<< SEARCH\n{lines[0]}\n=======\n{right}\n>>>>>>> REPLACE\n"
    return f"Triton has no {unknown[1]}; {near[0]} is meant.\n```text\n{patch}```\n"


def _review(sections: dict[str, str]) -> str:
    """Kernels that use a name which Triton does not have will not compile."""
    _section(sections, "What a kernel is")
    _find(r"def kernel_function", _section(sections, "The correct kernel"), "correct kernel")
    kernels = re.findall(
        r"^### Kernel (\d+): [^\n]*\n\n(`{3,})\w*\n(.*?)^\2$",
        _section(sections, "The kernels"),
        re.MULTILINE | re.DOTALL,
    )
    if not kernels:
        raise PromptBroken("no kernels to review")
    concerns = []
    for number, _, source in kernels:
        bad = sorted(set(re.findall(r"tl\.(\w+)\(", source)) - set(TRITON_NAMES))
        concerns.append(
            {
                "variant": int(number),
                "fails": bool(bad),
                "kind": "compile" if bad else "none",
                "reason": f"Triton has no attribute '{bad[0]}'" if bad else "",
            }
        )
    return json.dumps({"concerns": concerns})


def _first(sections: dict[str, str]) -> str:
    _section(sections, "Where a kernel can get")
    _section(sections, "What a kernel is")
    return "I know no kernel for this by heart.\n"


def clumsy(prompt: str) -> str:
    """The reply of `think`, but that what it writes anew misspells two of Triton's names."""
    reply = think(prompt)
    if "## The kernel to rewrite" not in prompt:
        return reply
    return reply.replace("tl.program_id(", "tl.programid(").replace("tl.store(", "tl.stores(")


def ideas(source: str, direction: str) -> Iterator[tuple[str, str]]:
    """Descriptions and kernels: sizes as constants, with a change of launch parameters.

    The direction decides which change comes first, so that workers do not all write the same.
    """
    launches: list[tuple[str, Callable[[ast.Module], None]]] = [
        ("the launch as it was", lambda tree: None),
        ("8 warps a program", lambda tree: _set_warps(tree, 8)),
        ("half the block", lambda tree: _scale_block(tree, 0.5)),
        ("2 warps a program", lambda tree: _set_warps(tree, 2)),
        ("a quarter of the block", lambda tree: _scale_block(tree, 0.25)),
        ("twice the block", lambda tree: _scale_block(tree, 2)),
    ]
    order = ("integer_overhead", "latency_not_hidden", "low_occupancy")
    first = order.index(direction) if direction in order else 3
    before = ast.unparse(ast.parse(source))
    for name, change in launches[first:] + launches[:first]:
        tree = ast.parse(source)
        _make_sizes_constant(tree)
        change(tree)
        after = ast.unparse(ast.fix_missing_locations(tree))
        if after != before:
            yield (
                f"Sizes are tl.constexpr, so that index arithmetic folds; {name}.",
                after,
            )


def _jit_functions(tree: ast.Module) -> list[ast.FunctionDef]:
    return [
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)
    ]


def _make_sizes_constant(tree: ast.Module) -> None:
    for function in _jit_functions(tree):
        for argument in function.args.args:
            if argument.annotation is None and not argument.arg.endswith("_ptr"):
                argument.annotation = ast.parse("tl.constexpr", mode="eval").body


def _launches(tree: ast.Module) -> list[ast.Call]:
    names = {function.name for function in _jit_functions(tree)}
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Subscript)
        and ast.unparse(node.func.value) in names
    ]


def _set_warps(tree: ast.Module, warps: int) -> None:
    for call in _launches(tree):
        call.keywords = [k for k in call.keywords if k.arg != "num_warps"]
        call.keywords.append(ast.keyword("num_warps", ast.Constant(warps)))


def _scale_block(tree: ast.Module, factor: float) -> None:
    """Every constant of the host code that equals a block size passed to a launch, scaled."""
    blocks = {
        keyword.value.value
        for call in _launches(tree)
        for keyword in call.keywords
        if keyword.arg and "BLOCK" in keyword.arg and isinstance(keyword.value, ast.Constant)
    }
    hosts = [n for n in tree.body if n not in _jit_functions(tree)]
    for node in (inner for host in hosts for inner in ast.walk(host)):
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in blocks:
            node.value = max(32, int(node.value * factor))
