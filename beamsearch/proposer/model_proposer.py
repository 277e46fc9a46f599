"""A chat model as the one who thinks."""

from __future__ import annotations

from beamsearch.llm.types import Chat, Ticket
from beamsearch.proposer.prompts.render import asked_again
from beamsearch.proposer.questions import (
    Diagnosis,
    FirstQuestion,
    Purpose,
    Question,
    Reflection,
    Reply,
    Review,
    subject,
)
from beamsearch.proposer.replies import json_schema
from beamsearch.records.record import Record

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
