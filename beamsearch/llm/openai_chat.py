"""A chat model behind an OpenAI-compatible endpoint, asked again where the endpoint fails."""

from __future__ import annotations

import difflib
import json
import time
from collections.abc import Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamsearch.errors import EndpointError, NoAnswer
from beamsearch.llm.endpoint import BASE_URL, DEFAULT_MODEL, Endpoint, find_endpoint, read_env
from beamsearch.llm.endpoint_errors import Passing, UnknownModel, broken_connection, refusal
from beamsearch.llm.types import (
    Completion,
    Sampling,
    Ticket,
    completion_of,
    message_of,
    request_body,
)

if TYPE_CHECKING:
    import openai
    import tenacity


@dataclass(frozen=True)
class Retries:
    """Limits on the tries of one call."""

    attempt_s: float = 600.0
    """One try; a long answer of a reasoning model takes minutes."""
    deadline_s: float = 1800.0
    """All tries of one call and the waits between them."""
    tries: int = 8
    """With doubling waits, the eighth try is about two minutes after the first."""
    first_wait_s: float = 1.0
    longest_wait_s: float = 60.0
    connect_s: float = 10.0

    def attempts(self) -> tenacity.AsyncRetrying:
        """The tries of one call, each to be entered as a context: what is Passing is tried again,
        and raised after the last try."""
        import tenacity

        return tenacity.AsyncRetrying(
            retry=tenacity.retry_if_exception_type(Passing),
            wait=self._wait_s,
            stop=tenacity.stop_any(
                tenacity.stop_after_attempt(self.tries),
                tenacity.stop_before_delay(self.deadline_s),
            ),
            reraise=True,
        )

    def _wait_s(self, state: tenacity.RetryCallState) -> float:
        """What Retry-After says, else doubling waits; jitter lets workers fall out of step."""
        import tenacity

        error = state.outcome.exception() if state.outcome else None
        jitter_s = tenacity.wait_random(0, self.first_wait_s)(state)
        if isinstance(error, Passing) and error.retry_after_s is not None:
            return error.retry_after_s + jitter_s
        doubling = tenacity.wait_exponential(self.first_wait_s, max=self.longest_wait_s)
        return doubling(state) + jitter_s


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
        # An event loop of its own: cancelling is the one way to end a reply that drips on for ever.
        body = request_body(self.name, prompt, ticket, self.sampling)
        if ticket.form is not None and self._structured:
            try:
                return _ended(self._ask(body))
            except NoStructures:
                self._structured = False  # the prompt says in words, too, what the answer holds
        body.pop("response_format", None)
        return _ended(self._ask(body))

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
            said = completion_of(answer, self.name, latency_s=latency_s, retries=tries - 1)
            # An endpoint that echoes the key would fill the trace with it.
            return said.with_values(text=self.endpoint.without_key(said.text))
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
                raw = await client.chat.completions.with_raw_response.create(**body)
            answer: Any = json.loads(raw.text)
        except (TimeoutError, openai.APITimeoutError):
            fault = Passing(f"no whole answer within {timeout_s:.3g} s")
        except openai.APIStatusError as error:
            fault = refusal(error, self.endpoint, self.name)
            if error.status_code in (400, 422) and "response_format" in body:
                fault = NoStructures(str(fault))
        except openai.APIConnectionError as error:
            fault = broken_connection(error, self.endpoint)
        except (ValueError, RecursionError):
            fault = Passing("an answer that is not JSON")
        else:
            if message_of(answer) is not None:
                return answer
            fault = Passing("an answer that holds no message")
        if isinstance(fault, UnknownModel):
            fault = UnknownModel(f"{fault}{_near(self.name, await _listed(client))}")
        raise fault


def _ended(asking: Coroutine[Any, Any, Completion]) -> Completion:
    """The result, in a thread of its own where this one has an event loop, as in a notebook."""
    import asyncio

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(asking)
    with ThreadPoolExecutor(1) as aside:
        return aside.submit(asyncio.run, asking).result()


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
