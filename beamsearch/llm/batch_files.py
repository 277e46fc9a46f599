"""Questions and answers as files in the form of OpenAI's Batch API, for a machine with no network.

`requests*.jsonl` hold what is unanswered, `responses*.jsonl` what came back: in any order, in part,
with lines of errors, in several files. An error asks the question again, under a new id.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from beamsearch.errors import NoAnswer, Unanswered, UsageError
from beamsearch.llm.budget import Budget, counted
from beamsearch.llm.endpoint_errors import WORDS
from beamsearch.llm.types import (
    Completion,
    Sampling,
    Ticket,
    completion_of,
    message_of,
    request_body,
)
from beamsearch.records.record import Record
from beamsearch.records.trace import read_record, write_record, write_text

TRIES = 3
"""A question that came back as an error this often is given up."""
URL = "/v1/chat/completions"
RECORD = "batch.json"
REQUESTS, RESPONSES = "requests*.jsonl", "responses*.jsonl"
FIRST = "responses.jsonl"


class HandOvers(Record):
    """`batch.json`: which questions were handed over, one list a time."""

    asked: list[list[str]] = []


def hand_overs(folder: Path) -> list[list[str]]:
    """The questions of each time that a run handed some over."""
    path = folder / RECORD
    return read_record(path, HandOvers).asked if path.is_file() else []


def free_name(folder: Path) -> str:
    """A name for a file of responses that no file there has."""
    taken = {path.name for path in folder.glob(RESPONSES)}
    names = (FIRST, *(f"responses-{n}.jsonl" for n in range(2, len(taken) + 2)))
    return next(name for name in names if name not in taken)


class Mailbox:
    """The batch files of a run's folder. Safe in several threads."""

    def __init__(self, folder: Path, run: Callable[[], str]) -> None:
        """`run` names the run, once its folder is set up."""
        self._folder = folder
        self._run = run
        self._lock = threading.Lock()
        self._waiting: dict[str, dict[str, Any]] = {}
        self._answers = read_lines(folder, RESPONSES)

    def find(self, ticket: Ticket) -> tuple[dict[str, Any] | None, int, bool]:
        """What came back to a question: the response's body, or None where there is none yet; how
        often it came back as an error; and whether the form asked of the answer may be why. Raises
        NoAnswer after TRIES errors."""
        problem, formless = "", False
        for tries in range(TRIES):
            lines = self._answers.get(self._name(ticket, tries))
            if lines is None:
                return None, tries, formless
            for line in lines:
                found, problem = _usable(line)
                if found is not None:
                    return found, tries, formless
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
        names = sorted(self._waiting)
        for name in names:
            request = self._waiting[name]
            by_model.setdefault(request["body"]["model"], []).append(request)
        files = {
            f"requests{f'-{plain(model)}' if len(by_model) > 1 else ''}.jsonl": requests
            for model, requests in by_model.items()
        }
        self.close()
        for file, requests in files.items():
            lines = [json.dumps(request, ensure_ascii=False) for request in requests]
            write_text(self._folder / file, "\n".join(lines) + "\n")
        before = hand_overs(self._folder)
        if names and (not before or before[-1] != names):
            before = [*before, names]
            write_record(self._folder / RECORD, HandOvers(asked=before))
        return sorted(files), len(self._waiting), len(before)

    @property
    def next_file(self) -> str:
        """A name for the answers that are still to come."""
        return free_name(self._folder)

    def strangers(self) -> int:
        """How many lines of the responses answer no question that was ever handed over."""
        known = {name for names in hand_overs(self._folder) for name in names}
        return sum(len(lines) for name, lines in self._answers.items() if name not in known)

    def close(self) -> None:
        """Remove the requests: nothing is waited for any more."""
        for path in self._folder.glob(REQUESTS):
            path.unlink()

    def _name(self, ticket: Ticket, tries: int) -> str:
        words = [self._run(), f"r{ticket.round}", f"w{ticket.worker}", ticket.purpose]
        words += [ticket.subject] if ticket.subject else []
        words += [f"a{ticket.attempt}"] + ([f"e{tries}"] if tries else [])
        return "-".join(words)


class BatchModel:
    """A model that is asked through a mailbox, paid from a budget."""

    def __init__(
        self, model: str, mailbox: Mailbox, budget: Budget, sampling: Sampling | None = None
    ) -> None:
        self.name = model
        self._mailbox = mailbox
        self._budget = budget
        self._sampling = sampling or Sampling()

    def ask(self, prompt: str, ticket: Ticket) -> Completion:
        """The answer in the files: it was paid for, so there is room for it. Raises Unanswered
        where there is none yet, OutOfBudget where there is no room for another request, NoAnswer
        after TRIES errors."""
        found, tries, formless = self._mailbox.find(ticket)
        if found is not None:
            answer = counted(prompt, completion_of(found, self.name, batch=True, retries=tries))
            self._budget.settle(self.name, None, answer)
            return answer
        self._budget.reserve(self.name, prompt, batch=True)  # it stays under way
        body = request_body(self.name, prompt, ticket, self._sampling)
        if formless:
            body.pop("response_format", None)
        raise self._mailbox.put(ticket, tries, body)


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
    if not isinstance(body, dict) or message_of(body) is None:
        return None, "a response that holds no message"
    return body, ""


def read_lines(folder: Path, files: str) -> dict[str, list[dict[str, Any]]]:
    """Lines of some files by custom id. Raises UsageError for a line that is not one, naming it.

    A last line without its end may be a file that is still being copied; it is left for later.
    """
    found: dict[str, list[dict[str, Any]]] = {}
    for path in sorted(folder.glob(files)):
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
                    f"{path}, line {number}, is not a line of the Batch API's files; "
                    "correct the file or remove the line"
                ) from error
            found.setdefault(name, []).append(value)
    return found


def plain(name: str) -> str:
    """The name as part of a file's name."""
    return re.sub(r"[^\w.-]+", "_", name)
