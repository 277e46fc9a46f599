"""From a reply's text to what it says, the same for a model and for the playbook."""

from __future__ import annotations

import json
import re
from itertools import islice
from typing import Any

from pydantic import ValidationError

from beamsearch.llm.types import storable
from beamsearch.proposer.patches import DoesNotApply, apply_patch, is_patch
from beamsearch.proposer.prompts.facts import one_line
from beamsearch.proposer.questions import Diagnosis, Reflection, Review, Variant
from beamsearch.records.record import R, Record

FENCE = re.compile(r"^```([\w+-]*)[^\S\n]*\n(.*?)^```[^\S\n]*$", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^\s*(def kernel_function|class ModelNew)\b", re.MULTILINE)
MOST_VARIANTS = 8
"""Kernels taken from one reply, however many were asked for: each may cost a minute of a GPU."""


ERRORS = 5
"""Errors of an answer in JSON that are told: who mends these mends the others with them."""
ERROR_CHARACTERS = 600
BRACES = 1_000
"""Places at which an object is looked for: nonsense that is nothing else would take minutes."""


class UnreadableReply(ValueError):
    """A reply that does not hold what was asked for; the message says what is missing."""


def read_diagnosis(text: str) -> Diagnosis:
    """The diagnosis in a reply: a JSON object, fenced or bare. Raises UnreadableReply."""
    return _read(Diagnosis, text)


def read_reflection(text: str) -> Reflection:
    """The reflection in a reply: a JSON object, fenced or bare. Raises UnreadableReply."""
    return _read(Reflection, text)


def read_review(text: str, variants: int) -> Review:
    """The review in a reply: a JSON object that speaks of each kernel at most once. Raises
    UnreadableReply."""
    review = _read(Review, text)
    named = [concern.variant for concern in review.concerns]
    if len(set(named)) < len(named) or not set(named) <= set(range(variants)):
        told = one_line(f"the review names the kernels {named}", ERROR_CHARACTERS)
        raise UnreadableReply(f"{told}; there are {variants}, from 0")
    return review


def _read(kind: type[R], text: str) -> R:
    try:
        return kind.model_validate(_json_object(text))
    except ValidationError as error:
        name = kind.__name__.lower()
        raise UnreadableReply(f"the {name} does not fit: {_told(error)}") from error


def read_variants(text: str, base: str) -> list[Variant]:
    """Every kernel of a reply: its fences with a complete file or with a patch of `base`, each
    described by the line above it. At most MOST_VARIANTS.

    Raises UnreadableReply where there is none. Fences that are neither are passed over.
    """
    variants: list[Variant] = []
    for match in FENCE.finditer(text):
        language, code = match[1].lower(), match[2]
        described = _line_above(text[: match.start()])
        if language in ("", "python", "py") and ENTRY.search(code) and not is_patch(code):
            variants.append(Variant(description=described, source=code))
        elif is_patch(code):
            try:
                variants.append(Variant(description=described, source=apply_patch(code, base)))
            except DoesNotApply as error:
                fault = f"the patch does not apply: {error}"
                variants.append(
                    Variant(description=described, source=None, patch=code, fault=fault)
                )
    if not variants:
        raise UnreadableReply(
            "the reply holds no complete kernel in a ```python fence, and no patch of the kernel"
        )
    different: dict[str, Variant] = {}
    for variant in variants:
        different.setdefault(variant.source or variant.fault, variant)
    return list(different.values())[:MOST_VARIANTS]


def _told(error: ValidationError) -> str:
    """The first errors, a clause each."""
    errors = error.errors(include_url=False, include_context=False, include_input=False)
    told = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in errors[:ERRORS]]
    more = f"; and {len(errors) - ERRORS} errors more" if len(errors) > ERRORS else ""
    return one_line("; ".join(told), ERROR_CHARACTERS - len(more)) + more


def _line_above(text: str) -> str:
    before = [line.strip(" #*-") for line in text.splitlines() if line.strip()]
    return before[-1] if before and not before[-1].startswith("```") else "no description"


def json_schema(kind: type[Record]) -> dict[str, Any]:
    """The record's JSON schema in the subset that structured outputs take: every property is
    required, and none has a default."""

    def strict(part: Any) -> Any:
        if isinstance(part, list):
            return [strict(item) for item in part]
        if not isinstance(part, dict):
            return part
        kept = {key: strict(value) for key, value in part.items() if key not in ("default",)}
        if isinstance(kept.get("properties"), dict):
            kept["required"] = list(kept["properties"])
            kept["additionalProperties"] = False
        return kept

    schema: dict[str, Any] = strict(kind.model_json_schema())
    return {"name": kind.__name__.lower(), "schema": schema, "strict": True}


def _json_object(text: str) -> object:
    """The first JSON object that parses: fenced blocks first, then any brace in the text."""
    for match in FENCE.finditer(text):
        try:
            return _storable(json.loads(match[2]))
        except (ValueError, RecursionError):  # nonsense may be nested deeply
            continue
    decoder = json.JSONDecoder()
    for match in islice(re.finditer(r"\{", text), BRACES):
        try:
            return _storable(decoder.raw_decode(text, match.start())[0])
        except (ValueError, RecursionError):  # nonsense may be nested deeply
            continue
    raise UnreadableReply("the reply holds no JSON object")


def _storable(value: object) -> object:
    """The value with whole characters: an escape may stand for half a surrogate pair."""
    if isinstance(value, str):
        return storable(value)
    if isinstance(value, list):
        return [_storable(item) for item in value]
    if isinstance(value, dict):
        return {storable(key): _storable(item) for key, item in value.items()}
    return value
