"""Cache hints: what is read once leaves the caches early, what is written is not kept."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.flow import Flow
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.interface import Result, Rewrite, attempt
from beamsearch.proposer.playbook.rewrites.source import Module, NotApplicable, calls, keyword
from kernel_profiling.profile import FindingKind

FORMS: tuple[tuple[str, dict[str, str], dict[str, str]], ...] = (
    ("stores streamed past the caches (.cs)", {}, {"cache_modifier": ".cs"}),
    ("loads evicted first", {"eviction_policy": "evict_first"}, {}),
    (
        "loads evicted first, stores streamed (.cs)",
        {"eviction_policy": "evict_first"},
        {"cache_modifier": ".cs"},
    ),
    (
        "loads evicted last, stores first",
        {"eviction_policy": "evict_last"},
        {"eviction_policy": "evict_first"},
    ),
    ("loads kept out of L1 (.cg)", {"cache_modifier": ".cg"}, {}),
)


def apply(source: str, hints: Hints) -> list[Result]:
    """One form after the other, on every vector load and store that has no hint yet."""
    results = []
    for title, loads, stores in FORMS:
        results += attempt(source, lambda m, t=title, a=loads, b=stores: _hint(m, t, a, b))  # type: ignore[misc]
    return results


def _hint(module: Module, title: str, loads: dict[str, str], stores: dict[str, str]) -> str:
    done = 0
    for kernel in module.kernels.values():
        flow = Flow(kernel)
        for name, given in (("load", loads), ("store", stores)):
            for call in calls(kernel, name):
                if not flow.is_vector(call.args[0]) or "make_block_ptr" in ast.unparse(kernel):
                    continue
                if any(keyword(call, k) for k in ("cache_modifier", "eviction_policy")):
                    continue
                for key, value in given.items():
                    call.keywords.append(ast.keyword(arg=key, value=ast.Constant(value=value)))
                    done += 1
    if not done:
        raise NotApplicable("every access has its hint")
    return title


REWRITE = Rewrite("cache hints", (FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY), apply)
