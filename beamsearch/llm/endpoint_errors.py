"""What a failed request means: worth another try, or at an end and what to do about it."""

from __future__ import annotations

import re
import ssl
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from socket import EAI_AGAIN, gaierror
from typing import TYPE_CHECKING

from beamsearch.errors import EndpointError, NoAnswer
from beamsearch.llm.endpoint import BASE_URL, KEY, REDACTED, Endpoint

if TYPE_CHECKING:
    import openai

LOOKS_LIKE_A_KEY = re.compile(r"\bsk-[\w*.-]{4,}")
WORDS = 300
"""Characters of the endpoint's own words that an error quotes."""


class Passing(Exception):
    """A failure that the next try may not have."""

    def __init__(self, what: str, retry_after_s: float | None = None) -> None:
        super().__init__(what)
        self.retry_after_s = retry_after_s


class UnknownModel(EndpointError):
    """The endpoint answers, but not for this model."""


def refusal(error: openai.APIStatusError, endpoint: Endpoint, model: str) -> Exception:
    """What an HTTP error status means: `Passing`, or an EndpointError."""
    status, words, where = error.status_code, _words(error, endpoint), endpoint.where
    spent = status == 429 and error.code == "insufficient_quota"
    if not spent and (status in (408, 409, 425, 429) or status >= 500):
        return Passing(f"HTTP {status}{words}", retry_after_s(error.response.headers))
    if spent:
        return EndpointError(f"{where} says the quota is used up{words}; see to its billing")
    if status == 401:  # its own words may quote the key
        what = f"asks for a key (HTTP 401); set {KEY}"
        if endpoint.key is not None:
            what = f"refuses the key (HTTP 401); check {KEY}"
        return EndpointError(f"{where} {what}")
    if status == 403:
        return EndpointError(
            f"{where} denies access (HTTP 403){words}; check what the key in {KEY} may use"
        )
    if status == 404:
        return UnknownModel(
            f"{where} does not know the model {model!r} (HTTP 404){words}; choose another with "
            f"--model, or check the path of {BASE_URL}, which usually ends in /v1"
        )
    # A prompt that is too long or that a filter dislikes; the next one may be served.
    return NoAnswer(
        f"{where} refuses the request for the model {model!r} (HTTP {status}){words}; choose "
        "another with --model, or ask `python -m beamsearch doctor`"
    )


def broken_connection(error: BaseException, endpoint: Endpoint) -> Exception:
    """What a connection that failed means: `Passing`, or an EndpointError where nobody is there."""
    where = endpoint.where
    for cause in _causes(error):
        if isinstance(cause, ConnectionRefusedError):
            return EndpointError(
                f"nobody listens at {where}: start the endpoint, or correct {BASE_URL}"
            )
        if isinstance(cause, gaierror) and cause.errno != EAI_AGAIN:
            return EndpointError(
                f"the host of {where} is not known here: check {BASE_URL} and the network"
            )
        if isinstance(cause, ssl.SSLCertVerificationError):
            return EndpointError(
                f"the certificate of {where} is not trusted: check {BASE_URL}, or point "
                "SSL_CERT_FILE at its authority"
            )
    return Passing("the connection broke")


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds that Retry-After asks for, as a number or a date; None where it asks for nothing."""
    said = headers.get("retry-after", "").strip()
    try:
        return max(0.0, float(said))
    except ValueError:
        pass
    try:
        when = parsedate_to_datetime(said)
    except ValueError:
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(0.0, (when - datetime.now(UTC)).total_seconds())


def _words(error: openai.APIStatusError, endpoint: Endpoint) -> str:
    """`: ` and the endpoint's own words, without the key; nothing where it said none."""
    said = error.body.get("message") if isinstance(error.body, dict) else None
    if not isinstance(said, str) or not said.strip():
        return ""
    text = LOOKS_LIKE_A_KEY.sub(REDACTED, endpoint.without_key(said))  # whole or half masked
    text = " ".join(text.split())
    return ": " + (text if len(text) <= WORDS else text[: WORDS - 1] + "…").rstrip(".")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """The error and everything it was raised from, exception groups opened."""
    waiting, seen = [error], set()
    while waiting:
        here = waiting.pop()
        if id(here) in seen:
            continue
        seen.add(id(here))
        yield here
        if isinstance(here, BaseExceptionGroup):
            waiting += here.exceptions
        waiting += [e for e in (here.__cause__, here.__context__) if e is not None]
