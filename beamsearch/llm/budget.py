"""Limits on what a run may spend, kept by counting what was spent and what is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from beamsearch.errors import OutOfBudget
from beamsearch.llm.batch_files import BatchModel
from beamsearch.llm.prices import Prices
from beamsearch.llm.types import Chat, Completion, Ticket, approximate_tokens

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


@dataclass(frozen=True)
class Limits:
    """What a run may spend in all; None for no limit."""

    calls: int | None = None
    tokens: int | None = None
    cost_usd: float | None = None


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

    @contextmanager
    def paying(self, model: str, prompt: str) -> Iterator[list[Completion]]:
        """Room for one question; the caller puts the answer into the list. Raises OutOfBudget."""
        asked = self.reserve(model, prompt)
        answers: list[Completion] = []
        try:
            yield answers
        finally:
            with self._lock:
                self._under_way.remove(asked)
                self._spend(model, answers)

    def pay(self, model: str, answer: Completion) -> None:
        """Count an answer that is there, whatever the limits leave."""
        with self._lock:
            self._spend(model, [answer])

    def reserve(self, model: str, prompt: str, batch: bool = False) -> Spent:
        """Count a question as under way. Raises OutOfBudget where there is no room for it."""
        tokens_in = approximate_tokens(prompt)
        with self._lock:
            tokens_out = max(TOKENS_OUT, self._spent.largest_out)
            cost = self._prices.cost_usd(model, tokens_in, tokens_out, batch=batch)
            asked = Spent(1, tokens_in + tokens_out, cost or 0.0)
            after = total([self._spent, *self._under_way, asked])
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

    def _spend(self, model: str, answers: Sequence[Completion]) -> None:
        for answer in answers:
            tokens_in, tokens_out = answer.tokens_in or 0, answer.tokens_out or 0
            cost = self._prices.cost_usd(
                model, tokens_in, tokens_out, answer.tokens_cached, answer.batch
            )
            own = Spent(1, tokens_in + tokens_out, cost or 0.0, tokens_out)
            self._spent = total([self._spent, own])


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
    return answer.model_copy(update=missing | {"estimated": True}) if missing else answer


def total(parts: Sequence[Spent]) -> Spent:
    """What several came to together."""
    return Spent(
        calls=sum(part.calls for part in parts),
        tokens=sum(part.tokens for part in parts),
        cost_usd=sum(part.cost_usd for part in parts),
        largest_out=max((part.largest_out for part in parts), default=0),
    )


class Paid:
    """A chat that is paid from a budget."""

    def __init__(self, chat: Chat, budget: Budget) -> None:
        self.name = chat.name
        self._chat = chat
        self._budget = budget

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The chat's answer. Raises OutOfBudget where there is no room for it."""
        with self._budget.paying(self.name, prompt) as answers:
            answers.append(counted(prompt, self._chat.ask(prompt, ticket)))
        return answers[0]


class PaidBatch:
    """A model that is asked through batch files, paid from a budget."""

    def __init__(self, model: BatchModel, budget: Budget) -> None:
        self.name = model.name
        self._model = model
        self._budget = budget

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The answer in the files: it was paid for, so there is room for it. Raises Unanswered
        where there is none yet, OutOfBudget where there is no room for another request."""
        answer = self._model.find(ticket)
        if answer is None:
            self._budget.reserve(self.name, prompt, batch=True)  # it stays under way
            raise self._model.put(prompt, ticket)
        answer = counted(prompt, answer)
        self._budget.pay(self.name, answer)
        return answer
