"""What other packages bring to this one and to those built on it, by their entry points."""

from __future__ import annotations

from functools import cache
from importlib.metadata import entry_points
from typing import Any

from kernel_profiling.errors import BrokenExtension, one_line

FINDINGS = "beamsearch.findings"
"""A `findings.findings.Check` each."""
NOTES = "beamsearch.notes"
"""A package each; the `*.md` files in its folder are notes for prompts."""
REWRITES = "beamsearch.rewrites"
"""A `Rewrite` of the playbook each."""
PROPOSERS = "beamsearch.proposers"
"""A function of the settings and the run's trace each, which gives a `Proposer`."""
PROBLEMS = "beamsearch.problems"
"""A function from the text behind `NAME:` to a problem's file each."""


@cache
def extensions(group: str) -> dict[str, Any]:
    """What installed packages bring under a group, by its name there, in the order of the names.
    Raises BrokenExtension."""
    found = {}
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            found[point.name] = point.load()
        except Exception as error:
            package = point.dist.name if point.dist is not None else "a package"
            raise BrokenExtension(
                f"{package} brings {point.name} for {group}, and {point.value} cannot be imported: "
                f"{type(error).__name__}: {one_line(str(error))}; mend or uninstall {package}"
            ) from error
    return found
