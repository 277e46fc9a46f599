"""Which of them thinks."""

from __future__ import annotations

from collections.abc import Mapping

from beamsearch.llm.endpoint import DEFAULT_MODEL, endpoint_configured, find_endpoint, read_env
from beamsearch.proposer.questions import Proposer
from beamsearch.settings import Settings


def make_proposer(settings: Settings, env: Mapping[str, str] | None = None) -> Proposer:
    """Who thinks in this run: the model where settings ask for one or an endpoint is configured,
    else the playbook. `env`: by default the environment; a `.env` in the current folder adds to it.

    Raises EndpointError where a model is asked for, by `llm` or by name, and no endpoint is
    configured: a model somebody named is not quietly replaced by the playbook.
    """
    if settings.llm != "playbook":
        env = read_env(environ=env)
        if settings.llm == "openai" or settings.model or endpoint_configured(env):
            from beamsearch.llm.chat import ChatModel
            from beamsearch.proposer.model import ModelProposer

            return ModelProposer(ChatModel(settings.model or DEFAULT_MODEL, find_endpoint(env)))
    from beamsearch.proposer.playbook import Playbook

    return Playbook()
