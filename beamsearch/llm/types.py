"""What a model is sent: the body of one chat completion, the same live and in a batch file."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beamsearch.llm.openai_chat import Ticket


CHARACTERS_PER_TOKEN = 3.0
"""Fewer than the 3.2 to 4 that current tokenizers reach on code and English, so that an estimate
errs on the long side."""


def approximate_tokens(text: str) -> int:
    """Tokens of a text, estimated from its length in bytes."""
    return math.ceil(len(text.encode()) / CHARACTERS_PER_TOKEN)


@dataclass(frozen=True)
class Manners:
    """How a model is asked, by purpose; a purpose that is not there gets the model's own way."""

    temperature: Mapping[str, float] = field(default_factory=dict)
    effort: Mapping[str, str] = field(default_factory=dict)
    """Reasoning effort: `low`, `medium`, `high`, or what else the model knows."""


def request_body(model: str, prompt: str, ticket: Ticket, manners: Manners) -> dict[str, Any]:
    """The body of a request to `/v1/chat/completions`."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if ticket.purpose in manners.temperature:
        body["temperature"] = manners.temperature[ticket.purpose]
    if ticket.purpose in manners.effort:
        body["reasoning_effort"] = manners.effort[ticket.purpose]
    if ticket.form is not None:
        body["response_format"] = {"type": "json_schema", "json_schema": ticket.form}
    return body
