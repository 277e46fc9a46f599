"""What a machine of a cluster offers and lacks: `python -m beamsearch.executor.node_facts`."""

from __future__ import annotations

import os
import shutil
import sys

from beamsearch.gpu.environment import unsupported_platform
from beamsearch.gpu.machine import find_machine
from beamsearch.records.run import Node
from kernel_profiling.ncu.run import check_permission, find_ncu


def facts() -> tuple[Node, str | None]:
    """This machine, by the first GPU that this process sees, and that GPU's UUID. Raises
    BeamsearchError."""
    here = find_machine().environment()
    node = Node(
        gpu=here.gpu,
        driver=here.driver,
        cuda=here.cuda,
        torch=here.torch,
        triton=here.triton,
        ncu=here.ncu,
        python=here.python,
        beamsearch=here.beamsearch,
    )
    return node, here.gpu_uuid


def lacking(node: Node) -> list[str]:
    """What it has not, one thing a line."""
    from beamsearch.judge.sandbox.isolation import missing_in_words
    from beamsearch.judge.sandbox.processes import missing_here

    lacks = [reason] if (reason := unsupported_platform()) else []
    if node.gpu is not None:
        if not (os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")):
            lacks.append("no C compiler, which Triton needs to launch kernels: install gcc")
        if find_ncu() is None:
            lacks.append("no Nsight Compute: profiles come from the compiler")
        elif (permission := check_permission()).allowed is False:
            lacks.append(permission.reason)
    if missing := missing_here():
        lacks.append(missing_in_words(missing))
    return lacks


if __name__ == "__main__":
    found = facts()[0]
    if "--lacking" in sys.argv[1:]:
        found = found.with_values(lacks=lacking(found))
    sys.stdout.write(found.model_dump_json() + "\n")
