"""From a reply's text to what it says, the same for a model and for the playbook."""

from __future__ import annotations

import json
import re

from pydantic import ValidationError

from beamsearch.proposer.questions import Diagnosis, Reflection, Variant

FENCE = re.compile(r"^```([\w+-]*)[^\S\n]*\n(.*?)^```[^\S\n]*$", re.MULTILINE | re.DOTALL)


class UnreadableReply(ValueError):
    """A reply that does not hold what was asked for; the message says what is missing."""


def read_diagnosis(text: str) -> Diagnosis:
    """The diagnosis in a reply: a JSON object, fenced or bare. Raises UnreadableReply."""
    try:
        return Diagnosis.model_validate(_json_object(text))
    except ValidationError as error:
        raise UnreadableReply(f"the diagnosis does not fit: {error}") from error


def read_reflection(text: str) -> Reflection:
    """The reflection in a reply: a JSON object, fenced or bare. Raises UnreadableReply."""
    try:
        return Reflection.model_validate(_json_object(text))
    except ValidationError as error:
        raise UnreadableReply(f"the reflection does not fit: {error}") from error


def read_variants(text: str, at_most: int) -> list[Variant]:
    """Every complete kernel of a reply: its Python fences, each described by the line above it.

    Raises UnreadableReply where there is none. Fences that define no entry point are passed over.
    """
    variants = []
    for match in FENCE.finditer(text):
        language, source = match[1].lower(), match[2]
        if language not in ("", "python", "py"):
            continue
        if not re.search(r"^\s*(def kernel_function|class ModelNew)\b", source, re.MULTILINE):
            continue
        before = [line.strip(" #*-") for line in text[: match.start()].splitlines() if line.strip()]
        description = before[-1] if before and not before[-1].startswith("```") else ""
        variants.append(Variant(description=description or "no description", source=source))
    if not variants:
        raise UnreadableReply("the reply holds no complete kernel in a ```python fence")
    return variants[:at_most]


def _json_object(text: str) -> object:
    """The first JSON object that parses: fenced blocks first, then any brace in the text."""
    for match in FENCE.finditer(text):
        try:
            return json.loads(match[2])
        except json.JSONDecodeError:
            continue
    decoder = json.JSONDecoder()
    for match in re.finditer(r"\{", text):
        try:
            return decoder.raw_decode(text[match.start() :])[0]
        except json.JSONDecodeError:
            continue
    raise UnreadableReply("the reply holds no JSON object")
