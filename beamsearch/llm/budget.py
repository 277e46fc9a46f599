"""Limits on what a run may spend, kept by counting what was spent and what is under way."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from beamsearch.errors import OutOfBudget
from beamsearch.llm.prices import Prices
from beamsearch.llm.types import Chat, Completion, Ticket, approximate_tokens
from beamsearch.records.call import Metered

TOKENS_OUT = 8_000
"""What an answer is taken to need before one was seen: two kernels of 200 lines, and thinking."""


@dataclass(frozen=True)
class Spent:
    """What calls came to."""

    calls: int = 0
    tokens: int = 0
    cost_usd: float = 0.0
    largest_out: int = 0
    """Most tokens out of one call."""

    def __add__(self, other: Spent) -> Spent:
        return Spent(
            self.calls + other.calls,
            self.tokens + other.tokens,
            self.cost_usd + other.cost_usd,
            max(self.largest_out, other.largest_out),
        )


@dataclass(frozen=True)
class Limits:
    """What a run may spend in all; None for no limit."""

    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


def spent_on(model: str | None, took: Metered, prices: Prices) -> Spent:
    """What one call came to; tokens or a price that are not known count as none."""
    tokens_out = took.tokens_out or 0
    cost = prices.cost_usd(model, took) or 0.0
    return Spent(1, (took.tokens_in or 0) + tokens_out, cost, tokens_out)


class Budget:
    """Lets a question through where the limits leave room for it. Safe in several threads.

    A question under way counts as its prompt's tokens and the longest answer seen so far, at least
    `TOKENS_OUT`: what is spent passes a limit only by what an answer is longer than that.
    """

    def __init__(self, limits: Limits, prices: Prices, spent: Spent) -> None:
        self._limits = limits
        self._prices = prices
        self._spent = spent
        self._under_way: list[Spent] = []
        self._lock = threading.Lock()

    def reserve(self, model: str, prompt: str, batch: bool = False) -> Spent:
        """Count a question as under way. Raises OutOfBudget where there is no room for it."""
        tokens_in = approximate_tokens(prompt)
        with self._lock:
            tokens_out = max(TOKENS_OUT, self._spent.largest_out)
            guess = Metered(tokens_in=tokens_in, tokens_out=tokens_out, batch=batch)
            asked = spent_on(model, guess, self._prices)
            after = sum([*self._under_way, asked], self._spent)
            for limit, would_be, what in (
                (self._limits.calls, after.calls, "{} calls (--max-calls)"),
                (self._limits.tokens, after.tokens, "{} tokens (--max-tokens)"),
                (self._limits.cost_usd, after.cost_usd, "${:.2f} (--max-cost)"),
            ):
                if limit is not None and would_be > limit:
                    raise OutOfBudget(
                        f"the limit of {what.format(limit)} leaves no room for another call"
                    )
            self._under_way.append(asked)
            return asked

    def settle(self, model: str, asked: Spent | None, answer: Completion | None) -> None:
        """A question is under way no more, and its answer is paid, whatever the limits leave."""
        with self._lock:
            if asked is not None:
                self._under_way.remove(asked)
            if answer is not None:
                self._spent += spent_on(model, answer, self._prices)


def counted(prompt: str, answer: Completion) -> Completion:
    """The answer with tokens that the endpoint did not tell estimated from the texts.

    From nothing but the texts, so that it is the same in every run; what a model thought and did
    not tell is not in it.
    """
    estimates = {"tokens_in": prompt, "tokens_out": answer.text}
    missing = {
        name: approximate_tokens(text)
        for name, text in estimates.items()
        if getattr(answer, name) is None
    }
    return answer.with_values(**missing, estimated=True) if missing else answer


class Paid:
    """A chat that is paid from a budget."""

    def __init__(self, chat: Chat, budget: Budget) -> None:
        self.name = chat.name
        self._chat = chat
        self._budget = budget

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The chat's answer. Raises OutOfBudget where there is no room for it."""
        asked = self._budget.reserve(self.name, prompt)
        answer = None
        try:
            answer = counted(prompt, self._chat.ask(prompt, ticket))
            return answer
        finally:
            self._budget.settle(self.name, asked, answer)
