"""A diagnosis as prompts show it: a line a field, and as long as a plan needs to be."""

from __future__ import annotations

from typing import Any

from beamsearch.proposer.prompts.facts import one_line
from beamsearch.proposer.questions import Diagnosis

CHARACTERS = {"bottleneck": 80, "cause": 1_200, "plan": 7_000}
"""A plan is asked for in 600 words; of 16 real ones the longest was 6,100 characters."""
ITEMS = 8
"""Items of evidence, and predictions."""
ITEM_CHARACTERS = 600
"""An item of evidence may quote a line of code and its counters."""


def plan(diagnosis: Diagnosis) -> dict[str, Any]:
    """The fields by name, and what was left out of them in words."""
    told = {name: getattr(diagnosis, name) for name in CHARACTERS}
    shown: dict[str, Any] = {name: one_line(text, CHARACTERS[name]) for name, text in told.items()}
    cut = [name for name, text in told.items() if shown[name] != one_line(text, len(text))]
    evidence = [one_line(item, ITEM_CHARACTERS) for item in diagnosis.evidence[:ITEMS]]
    if evidence != [one_line(item, len(item)) for item in diagnosis.evidence[:ITEMS]]:
        cut.append("evidence")
    left_out = [f"the end of the {' and of the '.join(cut)}"] if cut else []
    for what, items in (("evidence", diagnosis.evidence), ("predictions", diagnosis.predicted)):
        left_out += [f"{len(items) - ITEMS} more {what}"] if len(items) > ITEMS else []
    return shown | {
        "evidence": evidence,
        "expected_speedup": diagnosis.expected_speedup,
        "predicted": [
            {"finding": one_line(item.finding, 80), "bound_after": item.bound_after}
            for item in diagnosis.predicted[:ITEMS]
        ],
        "left_out": ", ".join(left_out),
    }
