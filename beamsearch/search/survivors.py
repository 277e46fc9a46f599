"""Which kernels are kept after a round, and which of them are built alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from beamsearch.problem.kernel import alike
from beamsearch.records.candidate import Candidate
from beamsearch.search.pairs import is_tie, is_win

FAMILY_REACH = 1.25
"""How many times slower than the best a kernel of another family may be and still have the last
place of the beam."""
_alike = lru_cache(maxsize=1 << 16)(alike)
"""Every round asks about all candidates again; a comparison takes a millisecond or more."""


def distinct(pool: Sequence[Candidate], times: Mapping[str, float]) -> list[Candidate]:
    """The different correct kernels, fastest first; equal times go to the earlier in `pool`.

    `times` are comparable (one visit, or ratios to its anchor). Kernels with the same source or the
    same compiled code are one kernel: the earliest of them.
    """
    kept: list[Candidate] = []
    seen: set[str] = set()
    for candidate in pool:
        if not candidate.verdict.correct or candidate.name not in times:
            continue
        code = candidate.verdict.code_fingerprint
        own = {f"source {candidate.fingerprint or candidate.name}"}
        own |= {f"code {code}"} if code else set()
        if seen.isdisjoint(own):
            kept.append(candidate)
        seen |= own
    return sorted(kept, key=lambda c: times[c.name])


def is_progress(
    candidate: Candidate, times: Mapping[str, float], families: Mapping[str, str]
) -> bool:
    """Whether a correct candidate is worth a place: it beats its parent, or equals it and is built
    another way. A worker none of whose kernels does returns nothing."""
    if candidate.parent is None or candidate.parent not in times:
        return True
    own, parents = times[candidate.name], times[candidate.parent]
    if is_tie(own, parents):
        return _family(candidate.name, families) != _family(candidate.parent, families)
    return is_win(own, parents)


def survivors(
    pool: Sequence[Candidate], times: Mapping[str, float], k: int, families: Mapping[str, str]
) -> list[Candidate]:
    """At most k different kernels, fastest first; the fastest of all is always among them.

    Of kernels that tie, the one of a family not kept yet goes first. Where all kept so far are of
    one family, the last place goes to the best kernel of another within FAMILY_REACH. A kernel and
    what it was tuned to are one, at its fastest. `families` is what the function below gives; one
    that is not in it is a family of its own.
    """
    fastest: dict[str, Candidate] = {}
    for candidate in distinct(pool, times):
        fastest.setdefault(candidate.tuned_from or candidate.name, candidate)
    ranked = list(fastest.values())
    kept: list[Candidate] = []
    while ranked and len(kept) < k:
        chosen = ranked[0]
        there = {_family(c.name, families) for c in kept}
        last = len(kept) == k - 1 and len(there) == 1
        for other in ranked if kept else ():
            tie = is_tie(times[other.name], times[chosen.name])
            near = last and times[other.name] <= times[kept[0].name] * FAMILY_REACH
            if not (tie or near):
                break
            if _family(other.name, families) not in there:
                chosen = other
                break
        kept.append(chosen)
        ranked.remove(chosen)
    return sorted(kept, key=lambda c: times[c.name])


def _family(name: str, families: Mapping[str, str]) -> str:
    return families.get(name, name)


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
