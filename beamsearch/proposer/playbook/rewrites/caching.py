"""What is written streams past the caches: the one cache hint that gained in the recorded runs."""

from __future__ import annotations

import ast

from beamsearch.proposer.playbook.rewrites.flow import Flow
from beamsearch.proposer.playbook.rewrites.source import (
    Module,
    NotApplicable,
    Rewrite,
    calls,
    keyword,
    on_module,
)
from kernel_profiling.profile import FindingKind


def _stream(module: Module) -> str:
    """Every vector store that has no hint yet."""
    done = 0
    for kernel in module.kernels.values():
        flow = Flow(kernel)
        if "make_block_ptr" in ast.unparse(kernel):
            continue
        for call in calls(kernel, "store"):
            hinted = any(keyword(call, k) for k in ("cache_modifier", "eviction_policy"))
            if flow.is_vector(call.args[0]) and not hinted:
                streamed = ast.Constant(value=".cs")
                call.keywords.append(ast.keyword(arg="cache_modifier", value=streamed))
                done += 1
    if not done:
        raise NotApplicable("no store without a hint")
    return "stores streamed past the caches (.cs)"


REWRITE = Rewrite(
    "cache hints", (FindingKind.EXCESS_TRAFFIC, FindingKind.LATENCY), on_module(_stream)
)
