"""What a candidate may not be, told from its source alone: only what no honest kernel does."""

from __future__ import annotations

import ast

FORBIDDEN_MODULES = ("beamsearch", "profiling")
"""The judge's own code: a kernel has no business there."""


def disallowed(source: str) -> str | None:
    """Why a source that parses is refused unseen, or none.

    A first, light sieve: behaviour decides wherever it can, and a rule that would refuse honest
    code is worse than none.
    """
    for node in ast.walk(ast.parse(source)):
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        own = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
        for name in own or [alias.name for alias in node.names]:
            if name.split(".")[0] in FORBIDDEN_MODULES:
                return f"line {node.lineno} imports {name}: a kernel may not use the judge's code"
    return None
