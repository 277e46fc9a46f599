"""Answers from a recorded run."""

from __future__ import annotations

import hashlib
from operator import attrgetter
from pathlib import Path

from beamsearch.errors import NeverAnswered, UsageError
from beamsearch.llm.types import Completion, Ticket
from beamsearch.records.call import METERED, Call
from beamsearch.records.packed import opened_run
from beamsearch.records.trace import Trace, read_record

KEY = attrgetter("round", "worker", "purpose", "subject", "attempt")
"""Of a call or a ticket: what a recorded reply is found by."""


class Replay:
    """A chat whose replies stand in a run's folder.

    A prompt that reads differently from the recorded one is answered all the same, and the answer
    says so.
    """

    def __init__(self, folder: Path) -> None:
        """Raises UsageError where the folder holds no run."""
        self._folder = folder
        self._trace = opened_run(folder)
        self.name = f"the replies recorded in {folder.name}"
        self._calls = {KEY(call): call for call in recorded_calls(self._trace)}
        self.of_models = any(call.model is not None for call in self._calls.values())
        """Whether a model gave them, not the playbook."""

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The recorded reply. Raises NoAnswer where there is none."""
        call = self._calls.get(KEY(ticket))
        if call is None:
            raise NeverAnswered(
                f"{self._folder} recorded no reply to {ticket.purpose} of worker "
                f"{ticket.worker} in round {ticket.round} (attempt {ticket.attempt})"
            )
        path = self._trace.folder / call.reply_file
        try:
            text = path.read_text()
        except OSError as error:
            raise UsageError(f"cannot read the recorded reply {path}: {error}") from error
        same = hashlib.sha256(prompt.encode()).hexdigest() == call.prompt_sha256
        return Completion(
            text=text,
            model=call.author,
            asked=call.model,
            recorded_sha256=None if same else call.prompt_sha256,
            **call.model_dump(include=METERED),
        )


def recorded_calls(trace: Trace) -> list[Call]:
    """Every call of a run, by round, worker and the file it stands in."""
    paths = trace.rounds_folder.glob("round_*/workers/*/calls/*.json")
    calls = [(read_record(path, Call), path.name) for path in paths]
    calls.sort(key=lambda item: (item[0].round, item[0].worker, item[1]))
    return [call for call, _ in calls]
