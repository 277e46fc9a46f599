"""A chat model behind an OpenAI-compatible endpoint, asked again where the endpoint fails."""

from __future__ import annotations

import difflib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from beamsearch.errors import EndpointError, NoAnswer
from beamsearch.llm.endpoint import BASE_URL, DEFAULT_MODEL, Endpoint, find_endpoint, read_env
from beamsearch.llm.endpoint_errors import Passing, UnknownModel, broken_connection, refusal
from beamsearch.llm.retries import Retries
from beamsearch.llm.types import Completion, Sampling, Ticket, request_body

if TYPE_CHECKING:
    import openai


class ChatModel:
    """A model behind an OpenAI-compatible endpoint, asked with retries. Safe in several threads."""

    def __init__(
        self,
        model: str,
        endpoint: Endpoint,
        retries: Retries | None = None,
        sampling: Sampling | None = None,
    ) -> None:
        self.name = model
        self.endpoint = endpoint
        self.retries = retries or Retries()
        self.sampling = sampling or Sampling()
        self._structured = True
        """Until the endpoint refuses a schema for the answer."""

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The model's answer. Raises EndpointError at once for a refused key, an unknown model or
        nobody listening, and NoAnswer after the last try of anything that might have passed."""
        import asyncio

        # An event loop of its own: cancelling is the one way to end a reply that drips on for ever.
        if ticket.form is not None and self._structured:
            try:
                return asyncio.run(
                    self._ask(request_body(self.name, prompt, ticket, self.sampling))
                )
            except NoStructures:
                self._structured = False  # the prompt says in words, too, what the answer holds
        plain = ticket.model_copy(update={"form": None})
        return asyncio.run(self._ask(request_body(self.name, prompt, plain, self.sampling)))

    async def _ask(self, body: dict[str, Any]) -> Completion:
        retries = self.retries
        started = time.monotonic()
        tries = 0
        try:
            async with _client(self.endpoint, retries) as client:
                async for attempt in retries.attempts():
                    with attempt:
                        tries += 1
                        left_s = retries.deadline_s - (time.monotonic() - started)
                        answer = await self._try(client, body, min(retries.attempt_s, left_s))
        except Passing as error:
            last = str(error)
        else:
            latency_s = round(time.monotonic() - started, 3)
            return self._completion(answer, latency_s, retries=tries - 1)
        raise NoAnswer(
            f"{self.endpoint.where} gave no answer in {tries} tries over "
            f"{time.monotonic() - started:.0f} s; the last: {last}. Resume the run when it is well"
        )

    async def _try(self, client: openai.AsyncOpenAI, body: dict[str, Any], timeout_s: float) -> Any:
        """One request. Faults are raised outside the handlers: an SDK error chained to ours would
        carry the endpoint's own words, and with them perhaps the key, into a traceback."""
        import asyncio

        import openai

        fault: Exception
        try:
            async with asyncio.timeout(timeout_s):
                answer = await client.chat.completions.create(**body)
        except (TimeoutError, openai.APITimeoutError):
            fault = Passing(f"no whole answer within {timeout_s:.3g} s")
        except openai.APIStatusError as error:
            fault = refusal(error, self.endpoint, self.name)
            if error.status_code in (400, 422) and "response_format" in body:
                fault = NoStructures(str(fault))
        except openai.APIConnectionError as error:
            fault = broken_connection(error, self.endpoint)
        except (ValueError, openai.APIResponseValidationError):
            # The SDK lets the JSON decoder's own error through.
            fault = Passing("an answer that is not JSON")
        else:
            if _message(answer) is not None:
                return answer
            fault = Passing("an answer that holds no message")
        if isinstance(fault, UnknownModel):
            fault = UnknownModel(f"{fault}{_near(self.name, await _listed(client))}")
        raise fault

    def _completion(self, answer: Any, latency_s: float, retries: int) -> Completion:
        message, usage = _message(answer), getattr(answer, "usage", None)
        text = text_of(getattr(message, "content", None), getattr(message, "refusal", None))
        return Completion(
            text=self.endpoint.without_key(text),  # an endpoint that echoes it fills the trace
            model=str(getattr(answer, "model", None) or self.name),
            asked=self.name,
            tokens_in=_count(usage, "prompt_tokens"),
            tokens_cached=_count(usage, "prompt_tokens_details", "cached_tokens"),
            tokens_out=_count(usage, "completion_tokens"),
            tokens_reasoning=_count(usage, "completion_tokens_details", "reasoning_tokens"),
            latency_s=latency_s,
            retries=retries,
        )


class NoStructures(EndpointError):
    """The endpoint refuses the request that asks for an answer in a given form."""


def check_endpoint(
    model: str | None = None, env: Mapping[str, str] | None = None
) -> tuple[bool, str]:
    """Whether the endpoint answers and has the model, and a line on it. Asks no model anything."""
    import asyncio

    try:
        endpoint = find_endpoint(read_env(environ=env))
        return asyncio.run(_check(model or DEFAULT_MODEL, endpoint))
    except EndpointError as error:
        return False, str(error)


async def _check(model: str, endpoint: Endpoint) -> tuple[bool, str]:
    import openai

    try:
        async with _client(endpoint, Retries(attempt_s=10, connect_s=5)) as client:
            listed = [item.id async for item in client.models.list()]
    except openai.APIStatusError as error:
        if error.status_code in (404, 405, 501):
            return False, (
                f"{endpoint.where} answers, but lists no models (HTTP {error.status_code}): check "
                f"the path of {BASE_URL}, usually /v1; if it is right, the first question tells"
            )
        return False, str(refusal(error, endpoint, model))
    except openai.APIConnectionError as error:
        return False, f"{endpoint.where}: {broken_connection(error, endpoint)}"
    except (ValueError, AttributeError, TypeError):
        return False, f"{endpoint.where} answers, but not as the OpenAI API does; check its address"
    if model in listed:
        return True, f"{endpoint.where} answers and has the model {model}"
    return False, (
        f"{endpoint.where} answers, but does not list the model {model!r}; "
        f"choose another with --model{_near(model, listed)}"
    )


def _client(endpoint: Endpoint, retries: Retries) -> openai.AsyncOpenAI:
    import openai

    return openai.AsyncOpenAI(
        api_key=endpoint.key or "none",  # the SDK insists on one
        base_url=endpoint.base_url,
        max_retries=0,  # retried here, where Retry-After and the deadline are kept
        timeout=openai.Timeout(retries.attempt_s, connect=retries.connect_s),
    )


async def _listed(client: openai.AsyncOpenAI) -> list[str]:
    """Names of the endpoint's models; empty where it does not say."""
    import openai

    try:
        return [item.id async for item in client.models.list(timeout=10)]
    except (openai.APIError, ValueError, AttributeError, TypeError):
        return []


def _near(model: str, listed: list[str]) -> str:
    near = difflib.get_close_matches(model, listed, n=3, cutoff=0.3) or sorted(listed)[:3]
    return f"; it has for example {', '.join(near)}" if near else ""


def text_of(content: object, refusal: object = None) -> str:
    """What a message says: its content, whole or in parts of text, else its refusal.

    Parts that hold no text (a model's thinking, an image) are passed over. Neither the SDK nor a
    batch file promises a type.
    """
    if isinstance(content, list):
        told = [part if isinstance(part, str) else _attribute(part, "text") for part in content]
        content = "".join(text for text in told if isinstance(text, str))
    for text in (content, refusal):
        if isinstance(text, str) and text:
            return text
    return ""


def _attribute(part: object, name: str) -> object:
    return part.get(name) if isinstance(part, dict) else getattr(part, name, None)


def _message(answer: Any) -> Any:
    """The first choice's message, or None: the SDK does not validate what it received."""
    choices = getattr(answer, "choices", None)
    return getattr(choices[0], "message", None) if isinstance(choices, list) and choices else None


def _count(usage: Any, *path: str) -> int | None:
    for name in path:
        usage = getattr(usage, name, None)
    return usage if isinstance(usage, int) else None
