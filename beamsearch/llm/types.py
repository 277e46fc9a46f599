"""A question to a model and its answer, the same live, in a batch file and in a recording."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Protocol

from pydantic import AfterValidator

from beamsearch.records.call import Metered
from beamsearch.records.record import Record

CHARACTERS_PER_TOKEN = 3.0
"""Fewer than the 3.2 to 4 that current tokenizers reach on code and English, so that an estimate
errs on the long side."""


def approximate_tokens(text: str) -> int:
    """Tokens of a text, estimated from its length in bytes."""
    return math.ceil(len(text.encode()) / CHARACTERS_PER_TOKEN)


class Ticket(Record):
    """Which question of a run a prompt is: what names it in a ledger, a batch file or a replay."""

    purpose: str
    round: int
    worker: int
    attempt: int = 0
    """0 for the first asking, 1 after one unreadable reply."""
    subject: str = ""
    """Tells questions of one worker and purpose apart: the name a repair will have."""
    form: dict[str, Any] | None = None
    """What the answer must fit: the `json_schema` of structured outputs; none for code."""


def storable(text: str) -> str:
    """The text as a file gives it back: lines end in `\\n`, and half of a surrogate pair, which
    JSON may hold and no file can, is U+FFFD."""
    whole = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return whole.replace("\r\n", "\n").replace("\r", "\n")


Told = Annotated[str, AfterValidator(storable)]


class Completion(Metered):
    """What came back, and what it took."""

    text: Told
    """Empty where the model said nothing."""
    model: Told
    """As the endpoint reports it."""
    asked: str | None = None
    """The model as it was asked for; none where no model was asked."""
    recorded_sha256: str | None = None
    """Hash of the prompt that a replayed reply was given to, where it is another one."""


def message_of(body: object) -> dict[str, Any] | None:
    """The first choice's message; None where the body of a response holds none."""
    match body:
        case {"choices": [{"message": dict() as message}, *_]}:
            return message
    return None


def completion_of(body: dict[str, Any], asked: str, **took: Any) -> Completion:
    """What the body of a response says, which holds a message, and what it took."""

    def count(*path: str) -> int | None:
        found: Any = body.get("usage")
        for name in path:
            found = found.get(name) if isinstance(found, dict) else None
        return found if isinstance(found, int) else None

    return Completion(
        text=_text_of(message_of(body) or {}),
        model=str(body.get("model") or asked),
        asked=asked,
        tokens_in=count("prompt_tokens"),
        tokens_cached=count("prompt_tokens_details", "cached_tokens"),
        tokens_out=count("completion_tokens"),
        tokens_reasoning=count("completion_tokens_details", "reasoning_tokens"),
        **took,
    )


def _text_of(message: dict[str, Any]) -> str:
    """What a message says: its content, whole or in parts of text, else its refusal.

    Parts that hold no text (a model's thinking, an image) are passed over; no type is sure.
    """
    content = message.get("content")
    if isinstance(content, list):
        told = [part.get("text") if isinstance(part, dict) else part for part in content]
        content = "".join(text for text in told if isinstance(text, str))
    said = (text for text in (content, message.get("refusal")) if isinstance(text, str) and text)
    return next(said, "")


class Chat(Protocol):
    """Somebody who answers a prompt: a live endpoint; recorded or batched replies fit as well."""

    name: str

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The answer to a prompt.

        Raises NoAnswer where this question gets none, EndpointError where none will,
        Unanswered where the answer is to be found later.
        """


@dataclass(frozen=True)
class Sampling:
    """How a model is asked, by purpose; a purpose that is not there gets the model's own way."""

    temperature: Mapping[str, float] = field(default_factory=dict)
    effort: Mapping[str, str] = field(default_factory=dict)
    """Reasoning effort: `low`, `medium`, `high`, or what else the model knows."""


def request_body(model: str, prompt: str, ticket: Ticket, sampling: Sampling) -> dict[str, Any]:
    """The body of a request to `/v1/chat/completions`."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if ticket.purpose in sampling.temperature:
        body["temperature"] = sampling.temperature[ticket.purpose]
    if ticket.purpose in sampling.effort:
        body["reasoning_effort"] = sampling.effort[ticket.purpose]
    if ticket.form is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": ticket.form}
    return body
