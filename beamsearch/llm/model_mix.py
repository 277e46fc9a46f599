"""Several models: which one answers a question, from nothing but the run's seed and its past."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from beamsearch.errors import UsageError
from beamsearch.llm.types import Chat, Completion, Ticket

Weights = Mapping[str, float]
"""Model -> how often it is asked, relative to the others."""


@dataclass(frozen=True)
class Standing:
    """How a model's kernels did in completed rounds."""

    wins: int = 0
    """Rounds whose confirmed win it wrote."""
    tries: int = 0
    """Times it was asked for kernels."""


Choose = Callable[[Ticket], str]


def read_weights(words: tuple[str, ...]) -> dict[str, float]:
    """Weights of `name` and `name@weight`. Raises UsageError for a weight that cannot be one.

    Only what follows the last `@` is a weight, and only where it is a number.
    """
    weights: dict[str, float] = {}
    for word in words:
        name, _, said = word.rpartition("@")
        try:
            weight = float(said) if name else 1.0
        except ValueError:
            name, weight = word, 1.0
        name = name or word
        if not 0 < weight < float("inf"):
            raise UsageError(f"--model {word}: a weight is a number above 0, as in {name}@2")
        if name in weights:
            raise UsageError(f"--model {name} is given twice; write {name}@2 to weigh it more")
        weights[name] = weight
    return weights


def by_weight(weights: Weights, seed: int) -> Choose:
    """Draws in proportion to the weights."""

    def choose(ticket: Ticket) -> str:
        names = list(weights)
        return _chance(seed, ticket).choices(names, [weights[name] for name in names])[0]

    return choose


def by_wins(
    weights: Weights, seed: int, standings: Callable[[int], Mapping[str, Standing]]
) -> Choose:
    """Thompson sampling on the share of a model's tries that became a confirmed win.

    Each model's share is drawn from Beta(1 + wins, 1 + losses), times its weight; the largest is
    asked. `standings(n)` knows the completed rounds before round n and no other, so that the choice
    is the same however the run was interrupted.
    """

    def choose(ticket: Ticket) -> str:
        chance, known = _chance(seed, ticket), standings(ticket.round)
        draws = {}
        for name, weight in weights.items():
            own = known.get(name, Standing())
            draws[name] = weight * chance.betavariate(1 + own.wins, 1 + own.tries - own.wins)
        return max(draws, key=lambda name: draws[name])

    return choose


def _chance(seed: int, ticket: Ticket) -> random.Random:
    """Chance of one question; asked again, it goes to the same model."""
    words = f"{seed} {ticket.round} {ticket.worker} {ticket.purpose} {ticket.subject}"
    return random.Random(int.from_bytes(hashlib.sha256(words.encode()).digest()[:8], "big"))


class ModelMix:
    """Several chats, of which one answers each question."""

    def __init__(self, chats: Mapping[str, Chat], choose: Choose) -> None:
        self.name = ", ".join(chats)
        self._chats = chats
        self._choose = choose

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The answer of the model chosen for this question."""
        return self._chats[self._choose(ticket)].ask(prompt, ticket)
