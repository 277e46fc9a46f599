"""From a reply's text to what it says, the same for a model and for the playbook."""

from __future__ import annotations

import json
import re
from functools import partial
from itertools import islice
from typing import Any

from pydantic import ValidationError

from beamsearch.llm.types import storable
from beamsearch.proposer.prompts.wording import one_line
from beamsearch.proposer.questions import Diagnosis, Reflection, Review
from beamsearch.records.proposal import Proposal
from beamsearch.records.record import R, Record

_BLOCK = re.compile(
    r"^<{5,9} ?SEARCH\s*?\n(.*?)^={5,9}\s*?\n(.*?)^>{5,9} ?REPLACE\s*?$", re.MULTILINE | re.DOTALL
)
_HUNK = re.compile(r"^@@(?: -(\d+).*?@@)?.*$")
FENCE = re.compile(r"^```([\w+-]*)[^\S\n]*\n(.*?)^```[^\S\n]*$", re.MULTILINE | re.DOTALL)
ENTRY = re.compile(r"^\s*(def kernel_function|class ModelNew)\b", re.MULTILINE)
MOST_VARIANTS = 8
"""Kernels taken from one reply, however many were asked for: each may cost a minute of a GPU."""
ERRORS = 5
"""Errors of a JSON answer that are listed: who mends these mends the others with them."""
SAID_CHARACTERS = 200
"""How much is told of a reply that has no code at all."""
ERROR_CHARACTERS = 600
BRACES = 1_000
"""Places at which an object is looked for: nonsense that is nothing else would take minutes."""


class UnreadableReply(ValueError):
    """A reply that does not hold what was asked for; the message says what is missing."""


class DoesNotApply(ValueError):
    """A patch that does not fit the kernel; the message says which part, to be shown its author."""


def is_patch(text: str) -> bool:
    """Whether a fence's text is a patch in one of the two forms."""
    return _BLOCK.search(text) is not None or any(_HUNK.match(s) for s in text.splitlines())


def apply_patch(patch: str, source: str) -> str:
    """The source with every change of the patch. Raises DoesNotApply; nothing is half applied.

    A place is found by its text; the line numbers of a diff, which models count badly, only choose
    among several places. Blanks at the ends of lines do not matter.
    """
    lines = source.splitlines()
    for near, old, new in _hunks(patch):
        lines = _replaced(lines, old, new, near)
    return "\n".join(lines) + "\n"


def _hunks(patch: str) -> list[tuple[int | None, list[str], list[str]]]:
    """Each part: the line it says it is at, the lines it finds, and those it puts there."""
    blocks = _BLOCK.finditer(patch)
    if parts := [(None, match[1].splitlines(), match[2].splitlines()) for match in blocks]:
        return [*parts]
    hunks: list[tuple[int | None, list[str], list[str]]] = []
    for line in patch.splitlines():
        head = _HUNK.match(line)
        if head:
            hunks.append((int(head[1]) if head[1] else None, [], []))
        elif hunks and not line.startswith("\\"):
            _, old, new = hunks[-1]
            mark, text = line[:1], line[1:]
            if mark != "+":
                old.append(text)
            if mark != "-":
                new.append(text)
    return hunks


def _replaced(lines: list[str], old: list[str], new: list[str], near: int | None) -> list[str]:
    if not old:
        raise DoesNotApply("a part of the patch names no line of the kernel to change")
    wanted = [line.rstrip() for line in old]
    have = [line.rstrip() for line in lines]
    places = [n for n in range(len(have) - len(old) + 1) if have[n : n + len(old)] == wanted]
    first = next((line.strip() for line in old if line.strip()), "")
    if not places:
        raise DoesNotApply(f"the kernel has no such lines, from `{first}` on")
    if len(places) > 1 and near is None:
        raise DoesNotApply(f"the kernel has these lines {len(places)} times, from `{first}` on")
    place = min(places, key=lambda n: abs(n + 1 - (near or 0)))
    return lines[:place] + new + lines[place + len(old) :]


def _read(kind: type[R], text: str) -> R:
    try:
        return kind.model_validate(_json_object(text))
    except ValidationError as error:
        errors = error.errors(include_url=False, include_context=False, include_input=False)
        told = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in errors[:ERRORS]]
        more = f"; and {len(errors) - ERRORS} errors more" if len(errors) > ERRORS else ""
        first = one_line("; ".join(told), ERROR_CHARACTERS - len(more))
        name = kind.__name__.lower()
        raise UnreadableReply(f"the {name} does not fit: {first}{more}") from error


read_diagnosis = partial(_read, Diagnosis)
"""The diagnosis in a reply: a JSON object, fenced or bare. Raises UnreadableReply."""
read_reflection = partial(_read, Reflection)
"""The reflection in a reply, in the same way."""


def read_review(text: str, variants: int) -> Review:
    """The review in a reply: a JSON object that speaks of each kernel at most once. Raises
    UnreadableReply."""
    review = _read(Review, text)
    named = [concern.variant for concern in review.concerns]
    if len(set(named)) < len(named) or not set(named) <= set(range(variants)):
        told = one_line(f"the review names the kernels {named}", ERROR_CHARACTERS)
        raise UnreadableReply(f"{told}; there are {variants}, from 0")
    return review


def read_variants(text: str, base: str) -> list[Proposal]:
    """Every kernel of a reply: its fences with a complete file or with a patch of `base`, each
    described by the line above it. At most MOST_VARIANTS.

    Raises UnreadableReply where there is none. Fences that are neither are passed over.
    """
    variants: dict[str, Proposal] = {}
    for match in FENCE.finditer(text):
        language, code = match[1].lower(), match[2]
        patch, fault = is_patch(code), ""
        source: str | None = code
        if patch:
            try:
                source = apply_patch(code, base)
            except DoesNotApply as error:
                source, fault = None, f"the patch does not apply: {error}"
        elif language not in ("", "python", "py") or not ENTRY.search(code):
            continue
        lines = [line.strip(" #*-") for line in text[: match.start()].splitlines() if line.strip()]
        described = lines and not lines[-1].startswith("```")
        variant = Proposal(
            description=lines[-1] if described else "no description",
            source=source,
            patch=code if fault else "",
            fault=fault,
        )
        variants.setdefault(source or fault, variant)
    if not variants:
        says = "" if "```" in text else f": {one_line(text, SAID_CHARACTERS)}".rstrip(": ")
        raise UnreadableReply(
            "the reply holds no complete kernel in a ```python fence, and no patch of the kernel"
            + says
        )
    return list(variants.values())[:MOST_VARIANTS]


def json_schema(kind: type[Record]) -> dict[str, Any]:
    """The record's JSON schema in the subset that structured outputs take: every property is
    required, and none has a default."""

    def strict(part: Any) -> Any:
        if isinstance(part, list):
            return [strict(item) for item in part]
        if not isinstance(part, dict):
            return part
        kept = {key: strict(value) for key, value in part.items() if key != "default"}
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
        except (ValueError, RecursionError):
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
