"""Who thinks: a model, asked its prompts, or the playbook."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import get_args

from beamsearch.errors import UsageError
from beamsearch.llm.batch_files import BatchModel, Mailbox
from beamsearch.llm.budget import Budget, Limits, Paid, Spent
from beamsearch.llm.costs import run_prices, spent, standings
from beamsearch.llm.endpoint import DEFAULT_MODEL, endpoint_configured, find_endpoint, read_env
from beamsearch.llm.model_mix import ModelMix, by_weight, by_wins, read_weights
from beamsearch.llm.openai_chat import ChatModel, Retries
from beamsearch.llm.recorded import Replay
from beamsearch.llm.types import Chat, Sampling, Ticket
from beamsearch.proposer.prompts.render import asked_again
from beamsearch.proposer.questions import (
    Diagnosis,
    FirstQuestion,
    Proposer,
    Purpose,
    Question,
    Reflection,
    Reply,
    Review,
    subject,
)
from beamsearch.proposer.replies import json_schema
from beamsearch.records.record import Record
from beamsearch.records.trace import Trace
from beamsearch.settings import LIMITS, THINKERS, Settings
from kernel_profiling.extensions import PROPOSERS, extensions

FORMS: dict[Purpose, type[Record]] = {
    "diagnosis": Diagnosis,
    "reflection": Reflection,
    "review": Review,
}
"""The records that replies hold as JSON; a reply to another question holds code."""


class ModelProposer:
    """Answers a question by asking a chat model its prompt."""

    reads_prompts = True

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.name = chat.name

    def answer(self, question: Question | FirstQuestion, prompt: str) -> Reply:
        """The model's reply. Raises EndpointError where the endpoint gives none."""
        form = FORMS.get(question.purpose)
        ticket = Ticket(
            purpose=question.purpose,
            round=question.round,
            worker=question.worker,
            attempt=asked_again(prompt),
            subject=subject(question),
            form=None if form is None else json_schema(form),
        )
        completion = self.chat.ask(prompt, ticket)
        told = completion.model_dump(exclude={"model", "asked"})
        return Reply(author=completion.model, model=completion.asked, **told)


def make_proposer(
    settings: Settings,
    env: Mapping[str, str] | None = None,
    trace: Trace | None = None,
    mailbox: Mailbox | None = None,
) -> Proposer:
    """Who thinks in this run: the model where settings ask for one or an endpoint is configured,
    else the playbook. `env`: by default the environment; a `.env` in the current folder adds to it.
    `trace`: the run's, which knows what was spent and won so far. `mailbox`: the batch files.

    Raises EndpointError where a model is asked for, by `llm` or by name, and no endpoint is
    configured: a model somebody named is not quietly replaced by the playbook. Raises UsageError
    for settings that do not fit.
    """
    for name in ("temperature", "effort"):
        if unknown := set(getattr(settings, name)) - set(get_args(Purpose)):
            known = ", ".join(get_args(Purpose))
            raise UsageError(f"{name}: unknown purpose {sorted(unknown)[0]!r}; known: {known}")
    if settings.llm.is_brought:
        return _brought(settings, trace)
    if settings.llm.run is not None:
        recorded = Replay(settings.llm.run)
        proposer = ModelProposer(recorded)
        proposer.reads_prompts = recorded.of_models
        return proposer
    how = Sampling(settings.temperature, settings.effort)
    if settings.llm.kind == "batch":
        if mailbox is None:
            raise UsageError("--llm batch needs a run's folder for its files")
        return _models(settings, trace, lambda name, budget: BatchModel(name, mailbox, budget, how))
    if settings.llm.kind != "playbook":
        env = read_env(environ=env)
        if decided(settings, env).llm.kind == "openai":
            endpoint = find_endpoint(env)
            retries = Retries(settings.answer_timeout_s, settings.answer_deadline_s)
            return _models(
                settings,
                trace,
                lambda name, budget: Paid(ChatModel(name, endpoint, retries, how), budget),
            )
    from beamsearch.proposer.playbook.playbook import Playbook

    return Playbook()


def check_thinker(settings: Settings) -> None:
    """See at once whether `make_proposer` finds who thinks, and ask nobody. Raises as it does."""
    if settings.llm.is_brought:
        _known(settings)
    elif decided(settings).llm.kind == "openai":
        make_proposer(settings)


def _brought(settings: Settings, trace: Trace | None) -> Proposer:
    """The proposer of an installed package. Raises UsageError where none is called so."""
    return _known(settings)(settings, trace)


def _known(settings: Settings) -> Callable[[Settings, Trace | None], Proposer]:
    """What makes that proposer."""
    known = extensions(PROPOSERS)
    if settings.llm.kind not in known:
        names = ", ".join((*THINKERS, "replay:RUN", *known))
        raise UsageError(
            f"--llm {settings.llm}: no such thinker; give one of {names}, or install the package "
            "that brings it"
        )
    make: Callable[[Settings, Trace | None], Proposer] = known[settings.llm.kind]
    return make


def decided(settings: Settings, env: Mapping[str, str] | None = None) -> Settings:
    """The settings with `auto` decided: the endpoint where a model is named or one is configured,
    else the playbook. `env`: the endpoint's variables; by default those of `read_env`."""
    if settings.llm.kind != "auto":
        return settings
    asks = settings.model or endpoint_configured(read_env() if env is None else env)
    return settings.thought_by("openai" if asks else "playbook")


def _models(
    settings: Settings, trace: Trace | None, make: Callable[[str, Budget], Chat]
) -> Proposer:
    weights = read_weights(settings.model or (DEFAULT_MODEL,))
    prices = run_prices(trace, settings.prices)
    unknown = [name for name in weights if name not in prices.models]
    if settings.max_cost is not None and unknown:
        raise UsageError(
            f"--max-cost needs the price of {unknown[0]}, which is not in the price list of "
            f"{prices.date}; give it in a file (`prices` in --config), or use --max-tokens"
        )
    limits = Limits(settings.max_calls, settings.max_tokens, settings.max_cost)
    budget = Budget(limits, prices, spent(trace, prices) if trace is not None else Spent())
    chats = {name: make(name, budget) for name in weights}
    if len(chats) == 1:
        return ModelProposer(next(iter(chats.values())))
    seed = settings.seed or 0
    choose = by_weight(weights, seed)
    if settings.model_choice != "weights" and trace is not None:
        choose = by_wins(weights, seed, lambda number: standings(trace, number))
    return ModelProposer(ModelMix(chats, choose))


def make_mailbox(trace: Trace, settings: Settings) -> Mailbox | None:
    """The batch files of a run, where questions go through them."""
    if settings.llm.kind != "batch":
        return None

    def name() -> str:
        """What tells a run's questions from another's: the same wherever its folder lies."""
        shaping = settings.model_dump_json(exclude=set(LIMITS))
        texts = (trace.problem_file.read_text(), trace.first_source(), shaping)
        digest = hashlib.sha256("\0".join(texts).encode()).hexdigest()[:8]
        return f"{trace.run_record().problem[:16]}-{digest}"

    return Mailbox(trace.folder, name)
