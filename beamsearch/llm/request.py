"""What a model is sent: the body of one chat completion, the same live and in a batch file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Schema = Mapping[str, Any]
"""JSON Schema of an answer."""


@dataclass(frozen=True)
class Manners:
    """How a model is asked, by purpose; a purpose that is not there gets the model's own way."""

    temperature: Mapping[str, float] = field(default_factory=dict)
    effort: Mapping[str, str] = field(default_factory=dict)
    """Reasoning effort: `low`, `medium`, `high`, or what else the model knows."""


def request_body(
    model: str, prompt: str, purpose: str, manners: Manners, schema: Schema | None = None
) -> dict[str, Any]:
    """The body of a request to `/v1/chat/completions`."""
    body: dict[str, Any] = {"model": model, "messages": [{"role": "user", "content": prompt}]}
    if purpose in manners.temperature:
        body["temperature"] = manners.temperature[purpose]
    if purpose in manners.effort:
        body["reasoning_effort"] = manners.effort[purpose]
    if schema is not None:
        shape = {"name": purpose, "schema": dict(schema)}
        body["response_format"] = {"type": "json_schema", "json_schema": shape}
    return body
