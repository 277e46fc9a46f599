"""Batch files for a person or a chat window: questions as plain texts, replies as responses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

from beamsearch.errors import UsageError
from beamsearch.llm.batch_files import (
    REQUESTS,
    RESPONSES,
    free_name,
    hand_overs,
    plain,
    read_lines,
)
from beamsearch.paths import command
from beamsearch.records.packed import written_run
from beamsearch.records.trace import write_text

QUESTION, REPLY = ".txt", ".reply"
FORM = "## The form of the answer"


class Taken(NamedTuple):
    """What came of replies."""

    file: Path
    """The responses that they became."""
    taken: list[str]
    still_open: list[str]
    """Questions without a reply."""


def write_questions(run: Path, folder: Path) -> list[str]:
    """Leave each open question of a run as a text in a folder; their names. Texts of questions that
    were answered meanwhile go. Raises UsageError where the run waits for no answer."""
    questions = open_questions(run)
    for name in _known(run):
        if name not in questions:
            (folder / f"{name}{QUESTION}").unlink(missing_ok=True)
    for name, request in questions.items():
        write_text(folder / f"{name}{QUESTION}", _text(request["body"]))
    return sorted(questions)


def take_replies(run: Path, folder: Path) -> Taken:
    """Make responses of the replies in a folder to questions that are open; all of them or, where
    one cannot be taken, none. Raises UsageError then, and where there is no new one."""
    questions, known = open_questions(run), _known(run)
    if not folder.is_dir():
        told = command("questions", run)
        raise UsageError(f"there is no folder {folder}; `{told}` makes one with the questions")
    replies = {path.name.removesuffix(REPLY): path for path in sorted(folder.glob(f"*{REPLY}"))}
    for name, path in replies.items():
        if name not in known:
            raise UsageError(
                f"{path} is a reply to no question of this run; name it after its question, "
                f"such as {min(questions)}{REPLY}"
            )
    new = {name: _read(path) for name, path in replies.items() if name in questions}
    still_open = sorted(questions.keys() - new.keys())
    if not new:
        raise UsageError(
            f"{folder} holds no new reply; what is open: "
            + ", ".join(f"{name}{REPLY}" for name in still_open)
        )
    file = run / free_name(run)
    lines = [json.dumps(_response(questions[name], text)) for name, text in new.items()]
    write_text(file, "\n".join(lines) + "\n")
    return Taken(file, sorted(new), still_open)


def open_questions(run: Path) -> dict[str, dict[str, Any]]:
    """The requests of a run to which nothing came back, by their names as files. Raises UsageError
    where there is none."""
    record = written_run(run).run_record()
    asked, answered = read_lines(run, REQUESTS), read_lines(run, RESPONSES)
    questions = {plain(name): lines[-1] for name, lines in asked.items() if name not in answered}
    if asked and not questions:
        told = command("resume", run)
        raise UsageError(f"every question of {run} is answered; go on with: {told}")
    if not questions:
        why = f": {record.stop_reason}" if record.stop_reason else ""
        raise UsageError(f"{run} waits for no answers; it is {record.status}{why}")
    return questions


def _known(run: Path) -> set[str]:
    """Names of every question that the run ever handed over, as files."""
    return {plain(name) for names in hand_overs(run) for name in names}


def _text(body: dict[str, Any]) -> str:
    """A question as a person can paste it; where it asks for JSON, with the schema of it."""
    parts = [message["content"].rstrip("\n") for message in body["messages"]]
    form = body.get("response_format", {}).get("json_schema")
    if form is not None:
        schema = json.dumps(form["schema"], indent=2, ensure_ascii=False)
        asked = "One JSON object, bare or in one fence, that fits this schema:"
        parts.append(f"{FORM}\n\n{asked}\n\n```json\n{schema}\n```")
    return "\n\n".join(parts) + "\n"


def _read(path: Path) -> str:
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error
    if not text.strip():
        raise UsageError(f"{path} is empty; write the reply, or remove the file to leave it open")
    return text


def _response(request: dict[str, Any], text: str) -> dict[str, Any]:
    body = {"choices": [{"message": {"role": "assistant", "content": text}}]}
    response = {"status_code": 200, "body": body}
    return {"custom_id": request["custom_id"], "response": response, "error": None}
