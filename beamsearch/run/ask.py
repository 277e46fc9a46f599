"""Answers to one worker's questions, each asked once and kept."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from beamsearch.proposer.questions import FirstQuestion, Proposer, Question, subject
from beamsearch.records.call import Call
from beamsearch.records.trace import Trace, write_record, write_text
from beamsearch.run.stop import StopToken


@dataclass(frozen=True)
class Answers:
    """Prompts, replies and calls in a worker's folder."""

    trace: Trace
    folder: Path
    proposer: Proposer
    stop: StopToken
    """Raises Stopped where the run is being stopped."""

    def get(
        self, question: Question | FirstQuestion, prompt: str, attempt: int, stems: tuple[str, str]
    ) -> str:
        """The recorded reply, or a new one. The reply's text is written last: it is the mark.

        `stems`: what the files of prompt and reply are called, but for the attempt. Raises what
        asking raises, and Stopped once a new one is kept: it was paid for.
        """
        suffix = "" if attempt == 0 else f"_{attempt + 1}"
        prompt_file, reply_file = (self.folder / f"{stem}{suffix}.txt" for stem in stems)
        if reply_file.is_file():
            return reply_file.read_text()
        write_text(prompt_file, prompt)
        reply = self.proposer.answer(question, prompt)
        call = Call(
            round=question.round,
            worker=question.worker,
            purpose=question.purpose,
            attempt=attempt,
            subject=subject(question),
            prompt_file=self.trace.relative(prompt_file),
            reply_file=self.trace.relative(reply_file),
            prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest(),
            **reply.model_dump(exclude={"text"}),
        )
        write_record(self.folder / "calls" / f"{reply_file.stem}.json", call)
        write_text(reply_file, reply.text)
        self.stop.check()
        return reply.text
