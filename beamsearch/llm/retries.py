"""How often an endpoint that fails is asked again, and how long is waited in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from beamsearch.llm.endpoint_errors import Passing

if TYPE_CHECKING:
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
