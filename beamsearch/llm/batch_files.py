"""Questions and answers as files in the form of OpenAI's Batch API, for a machine with no network.

`requests*.jsonl` hold what is unanswered, `responses*.jsonl` what came back: in any order, in part,
with lines of errors, in several files. An error asks the question again, under a new id.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from beamsearch.errors import NoAnswer, Unanswered, UsageError
from beamsearch.llm.endpoint_errors import WORDS
from beamsearch.llm.openai_chat import text_of
from beamsearch.llm.types import Completion, Sampling, Ticket, request_body
from beamsearch.records.record import Record
from beamsearch.records.trace import read_record, write_record, write_text

TRIES = 3
"""A question that came back as an error this often is given up."""
URL = "/v1/chat/completions"
RECORD = "batch.json"


class HandOvers(Record):
    """`batch.json`: which questions were handed over, one list a time."""

    asked: list[list[str]] = []


def hand_overs(folder: Path) -> int:
    """How often a run handed its questions over."""
    path = folder / RECORD
    return len(read_record(path, HandOvers).asked) if path.is_file() else 0


@dataclass(frozen=True)
class Found:
    """What came back to a question."""

    body: dict[str, Any] | None
    """The response's body; None where there is none yet."""
    tries: int
    """How often it came back as an error."""
    formless: bool
    """An error was such that the form asked of the answer may be why."""


class Mailbox:
    """The batch files of a run's folder. Safe in several threads."""

    def __init__(self, folder: Path, run: Callable[[], str]) -> None:
        """`run` names the run, once its folder is set up."""
        self._folder = folder
        self._run = run
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, Any]] = {}
        self._answers = _read_responses(folder)

    def find(self, ticket: Ticket) -> Found:
        """What came back to a question so far. Raises NoAnswer after TRIES errors."""
        problem, formless = "", False
        for tries in range(TRIES):
            lines = self._answers.get(self._name(ticket, tries))
            if lines is None:
                return Found(None, tries, formless)
            for line in lines:
                found, problem = _usable(line)
                if found is not None:
                    return Found(found, tries, formless)
                formless = formless or problem.startswith(("HTTP 400", "HTTP 422"))
        raise NoAnswer(
            f"{self._name(ticket, 0)} came back as an error {TRIES} times, at last with {problem}; "
            "to ask again, remove its lines from responses*.jsonl in the run's folder"
        )

    def put(self, ticket: Ticket, tries: int, body: dict[str, Any]) -> Unanswered:
        """Have a question asked with the next `hand_over`; what to raise then."""
        name = self._name(ticket, tries)
        with self._lock:
            self._waiting[name] = {"custom_id": name, "method": "POST", "url": URL, "body": body}
        return Unanswered(f"waiting for the answer to {name}")

    def hand_over(self) -> tuple[list[str], int, int]:
        """Write what is unanswered: names of the files, requests, and how many hand-overs so far.

        A provider takes one model a file, so that several models get a file each.
        """
        by_model: dict[str, list[dict[str, Any]]] = {}
        for name in sorted(self._waiting):
            request = self._waiting[name]
            by_model.setdefault(request["body"]["model"], []).append(request)
        files = {
            f"requests{f'-{_plain(model)}' if len(by_model) > 1 else ''}.jsonl": requests
            for model, requests in by_model.items()
        }
        self._remove_requests()
        for file, requests in files.items():
            lines = [json.dumps(request, ensure_ascii=False) for request in requests]
            write_text(self._folder / file, "\n".join(lines) + "\n")
        path = self._folder / RECORD
        before = read_record(path, HandOvers).asked if path.is_file() else []
        names = sorted(self._waiting)
        if names and (not before or before[-1] != names):
            before = [*before, names]
            write_record(path, HandOvers(asked=before))
        return sorted(files), len(self._waiting), len(before)

    def strangers(self) -> int:
        """How many lines of the responses answer no question that was ever handed over."""
        path = self._folder / RECORD
        asked = read_record(path, HandOvers).asked if path.is_file() else []
        known = {name for names in asked for name in names}
        return sum(len(lines) for name, lines in self._answers.items() if name not in known)

    def close(self) -> None:
        """Nothing is waited for any more."""
        self._remove_requests()

    def _remove_requests(self) -> None:
        for path in self._folder.glob("requests*.jsonl"):
            path.unlink()

    def _name(self, ticket: Ticket, tries: int) -> str:
        words = [self._run(), f"r{ticket.round}", f"w{ticket.worker}", ticket.purpose]
        words += [ticket.subject] if ticket.subject else []
        words += [f"a{ticket.attempt}"] + ([f"e{tries}"] if tries else [])
        return "-".join(words)


class BatchModel:
    """A model that is asked through a mailbox."""

    def __init__(self, model: str, mailbox: Mailbox, sampling: Sampling | None = None) -> None:
        self.name = model
        self._mailbox = mailbox
        self._manners = sampling or Sampling()

    def put(self, prompt: str, ticket: Ticket) -> Unanswered:
        """Have the question asked with the next hand-over; what to raise then."""
        before = self._mailbox.find(ticket)
        if before.formless:
            ticket = ticket.model_copy(update={"form": None})
        body = request_body(self.name, prompt, ticket, self._manners)
        return self._mailbox.put(ticket, before.tries, body)

    def find(self, ticket: Ticket) -> Completion | None:
        """The answer in the files, where it is there. Raises NoAnswer after TRIES errors."""
        found = self._mailbox.find(ticket)
        if found.body is None:
            return None
        answer, retries = found.body, found.tries
        message, usage = answer["choices"][0]["message"], answer.get("usage")
        return Completion(
            text=text_of(message.get("content"), message.get("refusal")),
            model=str(answer.get("model") or self.name),
            asked=self.name,
            batch=True,
            tokens_in=_count(usage, "prompt_tokens"),
            tokens_cached=_count(usage, "prompt_tokens_details", "cached_tokens"),
            tokens_out=_count(usage, "completion_tokens"),
            tokens_reasoning=_count(usage, "completion_tokens_details", "reasoning_tokens"),
            retries=retries,
        )


def _usable(line: dict[str, Any]) -> tuple[dict[str, Any] | None, str]:
    """The completion in a line of responses, or None and what is wrong with it."""
    response, error = line.get("response"), line.get("error")
    if not isinstance(response, dict):
        return None, str(error or "no response")[:WORDS]
    body, status = response.get("body"), response.get("status_code", 200)
    if status != 200:  # `vllm run-batch` says here what went wrong, and fills `error` as well
        return None, f"HTTP {status} {str(error or body)[:WORDS]}"
    if error:
        return None, str(error)[:WORDS]
    try:
        message = body["choices"][0]["message"]  # type: ignore[index]
    except (KeyError, IndexError, TypeError):
        message = None
    if not isinstance(body, dict) or not isinstance(message, dict):
        return None, "a response that holds no message"
    return body, ""


def _read_responses(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Lines by custom id. Raises UsageError for a line that is not one, naming it.

    A last line without its end may be a file that is still being copied; it is left for later.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob("responses*.jsonl")):
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {path}: {error}") from error
        whole = text.endswith("\n")
        lines = text.removesuffix("\n").split("\n")  # JSON may hold other separators of lines
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = json.loads(line)
                name = value["custom_id"]
                if not isinstance(name, str):
                    raise TypeError("custom_id is no text")
            except (ValueError, KeyError, TypeError, RecursionError) as error:
                if number == len(lines) and not whole:
                    continue
                raise UsageError(
                    f"{path}, line {number}, is not a line of the Batch API's output; "
                    "correct the file or remove the line"
                ) from error
            found.setdefault(name, []).append(value)
    return found


def _count(usage: Any, *path: str) -> int | None:
    for name in path:
        usage = usage.get(name) if isinstance(usage, dict) else None
    return usage if isinstance(usage, int) else None


def _plain(model: str) -> str:
    return re.sub(r"[^\w.-]+", "_", model)
