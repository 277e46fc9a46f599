"""What every rewrite is."""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import dataclass

from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.proposer.playbook.rewrites.source import Launch, Module, NotApplicable
from kernel_profiling.profile import FindingKind

Result = tuple[str, str]
"""What was done, and the new source."""


@dataclass(frozen=True)
class Rewrite:
    """A source-to-source change of Triton kernels that keeps what they compute.

    `apply` gives every form of it that fits, best guess first; none where it does not apply.
    """

    name: str
    findings: tuple[FindingKind, ...]
    """What it answers."""
    apply: Callable[[str, Hints], list[Result]]


def attempt(source: str, change: Callable[[Module], str]) -> list[Result]:
    """The result of one change of a module, none where it does not fit or changes nothing."""
    try:
        module = Module(source)
        description = change(module)
    except NotApplicable:
        return []
    rendered = module.render()
    return [] if rendered is None else [(description, rendered)]


def attempt_kernel(
    source: str, change: Callable[[Module, ast.FunctionDef, Launch], str]
) -> list[Result]:
    """The same for a change of one kernel with one launch: the first kernel that it fits."""

    def first(module: Module) -> str:
        for name, kernel, _ in module.launched():
            try:
                return change(module, kernel, module.one_launch(name))
            except NotApplicable:
                continue
        raise NotApplicable("no kernel that it fits")

    return attempt(source, first)
