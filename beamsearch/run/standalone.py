"""The winner as a file that runs on its own, with no import from this project."""

from __future__ import annotations

import ast
from typing import Any

from beamsearch.problem.instance import instantiate
from beamsearch.problem.pinned import pinned
from beamsearch.problem.problem import Problem
from beamsearch.records.candidate import Candidate
from kernel_profiling.syntax import parse


def standalone(problem: Problem, source: str, best: Candidate) -> str:
    """The kernel's source, headed by what it is, with a main that calls it at the true shapes. Its
    autotuners have the configurations that were timed, and no others.

    `ModelNew` kernels get the heading only: they are built from the problem's own arguments.
    """
    heading = (
        f"# Best kernel of a beam search on {problem.name} ({problem.dtype}): {best.name}, "
        f"{best.measurement}.\n# {' '.join(best.description.split())}\n"
    )
    configs = best.measurement.configs if best.measurement else {}
    return heading + pinned(source, configs) + (_call(problem, source) or "")


def _call(problem: Problem, source: str) -> str | None:
    names = _parameters(source)
    if names is None or "__main__" in source:
        return None
    values = instantiate(problem, "meta").arguments.values
    arguments = [f"        {n}={_literal(values[n])},\n" for n in names if n in values]
    return (
        '\n\nif __name__ == "__main__":\n'
        "    import torch\n\n"
        "    if not torch.cuda.is_available():\n"
        '        raise SystemExit("this kernel needs an NVIDIA GPU")\n'
        "    output = kernel_function(\n" + "".join(arguments) + "    )\n"
        "    torch.cuda.synchronize()\n"
        "    print(tuple(output.shape), output.dtype)\n"
    )


def _parameters(source: str) -> list[str] | None:
    """Parameter names of kernel_function, or None where it is not a plain function."""
    for node in parse(source).body:
        if isinstance(node, ast.FunctionDef) and node.name == "kernel_function":
            arguments = node.args
            return [a.arg for a in (*arguments.args, *arguments.kwonlyargs)]
    return None


def _literal(value: Any) -> str:
    import torch

    if not isinstance(value, torch.Tensor):
        return repr(value)
    shape, dtype = tuple(value.shape), value.dtype
    if value.is_floating_point():
        return f'torch.rand({shape}, dtype={dtype}, device="cuda")'
    return f'torch.zeros({shape}, dtype={dtype}, device="cuda")'
