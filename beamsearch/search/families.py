"""Which kernels are forms of one, and which are built another way."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache

from beamsearch.problem.kernel import alike
from beamsearch.records.candidate import Candidate


def families(candidates: Iterable[Candidate], source: Callable[[Candidate], str]) -> dict[str, str]:
    """Correct candidate -> its family, named after the first kernel in it.

    A family is a way of building the kernel: a candidate belongs to the family, its parent's or
    else the oldest, with whose founder it shares nine tenths of its lines, in order
    (`kernel.alike`), and founds one of its own where there is none. Lineage does not tell, since a
    child may be rewritten from the ground up; nor does the direction, since one finding is answered
    in many ways. In three recorded runs of the playbook this puts the tuned forms of a winner into
    one family (54 to 59 of 65 kernels) and each other algorithm into its own.
    """
    founders: dict[str, str] = {}
    found: dict[str, str] = {}
    for candidate in candidates:
        if not candidate.verdict.correct or candidate.kernel_file is None:
            continue
        text = source(candidate)
        usual = found.get(candidate.parent or "")
        order = sorted(founders, key=lambda name: name != usual)  # the parent's first, then by age
        family = next((name for name in order if _alike(founders[name], text)), candidate.name)
        founders.setdefault(family, text)
        found[candidate.name] = family
    return found


_alike = lru_cache(maxsize=1 << 16)(alike)
"""Every round asks about all candidates again; a comparison takes a millisecond or more."""
