"""A chat model as the one who thinks."""

from __future__ import annotations

from beamsearch.llm.types import Chat, Ticket
from beamsearch.proposer.prompts.render import asked_again
from beamsearch.proposer.questions import (
    FirstQuestion,
    Question,
    Reply,
    answer_form,
    subject,
)
from beamsearch.proposer.replies import json_schema


class ModelProposer:
    """Answers a question by asking a chat model its prompt."""

    reads_prompts = True

    def __init__(self, chat: Chat) -> None:
        self.chat = chat
        self.name = chat.name

    def answer(self, question: Question | FirstQuestion, prompt: str) -> Reply:
        """The model's reply. Raises EndpointError where the endpoint gives none."""
        form = answer_form(question)
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
