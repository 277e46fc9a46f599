"""Batch files, line by line."""

import json
import re

import pytest

from beamsearch.errors import NoAnswer, OutOfBudget, Unanswered, UsageError
from beamsearch.llm.batch_files import TRIES, BatchModel, Mailbox
from beamsearch.llm.budget import Budget, Limits, Spent
from beamsearch.llm.by_hand import take_replies, write_questions
from beamsearch.llm.endpoint import DEFAULT_MODEL, Endpoint
from beamsearch.llm.openai_chat import ChatModel
from beamsearch.llm.prices import read_prices
from beamsearch.llm.types import Sampling, Ticket
from beamsearch.records.trace import write_record, write_text
from beamsearch.run.round import hand_over
from tests import ROOT
from tests.cli.test_display import NO_GPU
from tests.llm.runs import beamsearch, refused, requests, write_lines
from tests.server import Script, completion, serving

TICKET = Ticket(
    purpose="diagnosis", round=1, worker=0, form={"name": "d", "schema": {"type": "object"}}
)
MANNERS = Sampling({"diagnosis": 0.2}, {"diagnosis": "high"})


def model(folder, name=DEFAULT_MODEL):
    mailbox = Mailbox(folder, lambda: "43-abc")
    return mailbox, BatchModel(name, mailbox, budget(), MANNERS)


def budget(spent=0, **limits):
    return Budget(Limits(**limits), read_prices(), Spent(tokens=spent))


def line(request, body, status=200):
    response = {"status_code": status, "request_id": "r", "body": body}
    return {"id": "b", "custom_id": request["custom_id"], "response": response, "error": None}


def ask_and_hand_over(folder):
    mailbox, chat = model(folder)
    with pytest.raises(Unanswered):
        chat.ask("hello", TICKET)
    return mailbox.hand_over()


def test_a_request_is_what_a_live_endpoint_is_sent(tmp_path):
    script = Script(think=str.upper)
    with serving(script=script) as base_url:
        live = ChatModel(DEFAULT_MODEL, Endpoint(base_url), sampling=MANNERS).ask("hello", TICKET)
    assert ask_and_hand_over(tmp_path) == (["requests.jsonl"], 1, 1)
    (request,) = requests(tmp_path)
    assert request["body"] == script.requests[0]
    assert request["body"]["temperature"] == 0.2 and request["body"]["reasoning_effort"] == "high"
    assert request["custom_id"] == "43-abc-r1-w0-diagnosis-a0" and request["method"] == "POST"

    body = completion(DEFAULT_MODEL, "hello", "HELLO")
    write_lines(tmp_path / "responses.jsonl", [line(request, body)])
    found = model(tmp_path)[1].ask("hello", TICKET)
    same = {"batch": False, "latency_s": live.latency_s}
    assert found.batch and found.model_copy(update=same) == live


def test_errors_are_asked_again_and_given_up_in_the_end(tmp_path):
    bad = [
        refused,
        lambda request: line(request, {"error": {"message": "busy"}}, status=500),
        lambda request: line(request, {"choices": []}),
    ]
    assert len(bad) == TRIES
    for number, answer in enumerate(bad):
        ask_and_hand_over(tmp_path)
        (request,) = requests(tmp_path)
        assert request["custom_id"].endswith(f"-e{number}" if number else "-a0")
        write_lines(tmp_path / f"responses-{number}.jsonl", [answer(request)])
    way_out = r"3 times, .*no message; to ask again, remove its lines from responses"
    with pytest.raises(NoAnswer, match=way_out):
        model(tmp_path)[1].ask("hello", TICKET)
    for path in tmp_path.glob("responses*"):
        path.unlink()
    assert ask_and_hand_over(tmp_path)[1] == 1


def test_a_provider_without_structured_answers_is_asked_in_words(tmp_path):
    for status, asks_for_form in ((500, True), (400, True), (None, False)):
        ask_and_hand_over(tmp_path)
        (request,) = requests(tmp_path)
        assert ("response_format" in request["body"]) is asks_for_form
        if status is not None:
            bad = line(request, {"error": {"message": "no"}}, status)
            write_lines(tmp_path / f"responses-{status}.jsonl", [bad])


def test_a_file_still_being_copied_waits_and_a_damaged_one_is_named(tmp_path):
    ask_and_hand_over(tmp_path)
    (request,) = requests(tmp_path)
    whole = json.dumps(line(request, completion(DEFAULT_MODEL, "hello", "HELLO")))
    path = tmp_path / "responses.jsonl"
    path.write_text(whole[:-30])
    with pytest.raises(Unanswered):
        model(tmp_path)[1].ask("hello", TICKET)
    path.write_text(whole[:-30] + "\n" + whole + "\n")
    with pytest.raises(UsageError, match=r"responses\.jsonl, line 1"):
        model(tmp_path)


def test_each_model_has_a_file_and_the_same_questions_are_one_hand_over(tmp_path):
    for _ in range(2):
        mailbox = Mailbox(tmp_path, lambda: "43-abc")
        for worker, name in enumerate(("a", "org/b")):
            with pytest.raises(Unanswered):
                ticket = TICKET.model_copy(update={"worker": worker})
                BatchModel(name, mailbox, budget()).ask("hello", ticket)
        files, asked, number = mailbox.hand_over()
        assert (files, asked, number) == (["requests-a.jsonl", "requests-org_b.jsonl"], 2, 1)
    mailbox.close()
    assert not list(tmp_path.glob("requests*"))


def test_an_error_of_vllms_batch_runner_that_may_be_the_forms_is_asked_without_it(tmp_path):
    """`vllm run-batch` fills both: the status in the response, and what went wrong as the error."""
    error = {"error": {"message": "guided decoding failed", "type": "BadRequest", "code": 400}}
    busy = {"error": {"message": "engine is dead", "type": "InternalServerError", "code": 500}}
    for number, (status, told) in enumerate(((400, error), (500, busy))):
        ask_and_hand_over(tmp_path)
        (request,) = requests(tmp_path)
        assert ("response_format" in request["body"]) is (number == 0)
        bad = line(request, None, status) | {"error": told}
        write_lines(tmp_path / f"responses-{number}.jsonl", [bad])
    ask_and_hand_over(tmp_path)
    (request,) = requests(tmp_path)
    assert "response_format" not in request["body"], "a later error of another kind forgets nothing"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        ([{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "A\r\nB"}], "A\nB"),
        ([{"type": "text", "text": "A"}, {"type": "text", "text": "B"}], "AB"),
        ("half \ud83d a pair", "half \ufffd a pair"),
        ("\ud83d\ude00", "\U0001f600"),
        ({"no": "text"}, ""),
        (None, ""),
    ],
)
def test_whatever_an_answer_holds_is_text_that_a_file_gives_back(tmp_path, content, text):
    ask_and_hand_over(tmp_path)
    (request,) = requests(tmp_path)
    body = completion(DEFAULT_MODEL, "hello", "")
    body["choices"][0]["message"]["content"] = content
    write_lines(tmp_path / "responses.jsonl", [line(request, body)])
    said = model(tmp_path)[1].ask("hello", TICKET).text
    assert said == text
    write_text(tmp_path / "reply.txt", said)
    assert (tmp_path / "reply.txt").read_text() == said


def test_an_answer_that_is_there_needs_no_room_and_a_request_does(tmp_path):
    ask_and_hand_over(tmp_path)
    (request,) = requests(tmp_path)
    write_lines(
        tmp_path / "responses.jsonl", [line(request, completion(DEFAULT_MODEL, "hello", "HELLO"))]
    )
    mailbox = Mailbox(tmp_path, lambda: "43-abc")
    chat = BatchModel(DEFAULT_MODEL, mailbox, budget(spent=20_000, tokens=20_001))
    assert chat.ask("hello", TICKET).text == "HELLO"
    with pytest.raises(OutOfBudget, match="--max-tokens"):
        chat.ask("hello", TICKET.model_copy(update={"worker": 1}))
    assert mailbox.hand_over() == ([], 0, 1)


def test_a_hand_over_names_a_file_that_is_free(tmp_path):
    ask_and_hand_over(tmp_path)
    mailbox, _ = model(tmp_path)
    assert str(hand_over(mailbox)).endswith("into the run's folder as responses.jsonl")
    for taken, free in (("", "-2"), ("-2", "-3"), ("-7", "-3")):
        write_lines(tmp_path / f"responses{taken}.jsonl", [])
        told = f"as responses{free}.jsonl, beside the files there, which may stay"
        assert str(hand_over(mailbox)).endswith(told)


def test_lines_that_answer_nothing_are_counted(tmp_path):
    ask_and_hand_over(tmp_path)
    (request,) = requests(tmp_path)
    body = completion(DEFAULT_MODEL, "hello", "HELLO")
    other = request | {"custom_id": "82-def-r1-w0-diagnosis-a0"}
    write_lines(tmp_path / "responses.jsonl", [line(other, body), line(other, body)])
    mailbox, chat = model(tmp_path)
    with pytest.raises(Unanswered):
        chat.ask("hello", TICKET)
    assert "2 lines of the responses there answer no question" in str(hand_over(mailbox))
    write_lines(tmp_path / "responses.jsonl", [line(request, body)])
    assert model(tmp_path)[0].strangers() == 0


def test_the_lines_that_the_documents_show_are_such(tmp_path):
    page = (ROOT / "docs" / "models.md").read_text()
    shown, answer = (json.loads(line) for line in re.findall(r'^\{"custom_id".*$', page, re.M))
    ask_and_hand_over(tmp_path)
    (request,) = requests(tmp_path)
    assert shown.keys() == request.keys() and shown["body"].keys() <= request["body"].keys()
    assert shown["custom_id"] == answer["custom_id"]

    # An answer needs no more than what is shown, and not the status nor that there is no error
    less = json.loads(json.dumps(answer))
    del less["error"], less["response"]["status_code"]
    for given in (answer, less):
        given["custom_id"] = request["custom_id"]
        write_lines(tmp_path / "responses.jsonl", [given])
        said = model(tmp_path)[1].ask("hello", TICKET)
        assert said.text == answer["response"]["body"]["choices"][0]["message"]["content"]


def waiting_run(folder):
    """A run that asked something; the question's name."""
    write_record(folder / "run.json", NO_GPU.with_values(status="waiting"))
    ask_and_hand_over(folder)
    return requests(folder)[0]["custom_id"]


def test_a_person_answers_questions_as_plain_texts(tmp_path):
    # Given a run that asks for JSON
    name = waiting_run(tmp_path / "run")
    folder = tmp_path / "run" / "questions"

    # When its questions are written, then each is a text of its own, with the form of its answer
    done = beamsearch("questions", "run", cwd=tmp_path)
    assert f"{name}.txt" in done.stdout and f"{name}.reply" in done.stdout
    assert done.stdout.splitlines()[-1] == "python -m beamsearch answers run"
    text = (folder / f"{name}.txt").read_text()
    assert text.startswith("hello\n") and "One JSON object" in text and '"type": "object"' in text

    # And the reply beside it is what the run reads, whatever it holds
    (folder / f"{name}.reply").write_text('```json\n{"a": "ß"}\n```\n')
    write_lines(tmp_path / "run" / "responses.jsonl", [])
    done = beamsearch("answers", "run", cwd=tmp_path)
    assert "1 reply is taken into run/responses-2.jsonl; nothing is open any more" in done.stdout
    assert done.stdout.splitlines()[-1] == "python -m beamsearch resume run"
    said = model(tmp_path / "run")[1].ask("hello", TICKET)
    assert said.text == '```json\n{"a": "ß"}\n```\n' and said.model == DEFAULT_MODEL

    # And both verbs say that nothing is open any more
    for verb in ("questions", "answers"):
        told = beamsearch(verb, "run", cwd=tmp_path, code=2).stderr
        assert "every question of run is answered" in told and "beamsearch resume run" in told


def test_what_has_no_reply_stays_open_and_what_is_answered_is_asked_no_more(tmp_path):
    # Given two questions and a reply to one
    waiting_run(tmp_path)
    mailbox, chat = model(tmp_path)
    for worker in range(2):
        with pytest.raises(Unanswered):
            chat.ask("hello", TICKET.model_copy(update={"worker": worker}))
    mailbox.hand_over()
    folder = tmp_path / "mine"
    one, two = write_questions(tmp_path, folder)
    (folder / f"{two}.reply").write_text("HELLO")

    # When it is taken, then the other is still open, and alone when questions are written again
    file = tmp_path / "responses.jsonl"
    assert take_replies(tmp_path, folder) == (file, [two], [one])
    assert write_questions(tmp_path, folder) == [one]
    assert sorted(path.name for path in folder.iterdir()) == [f"{one}.txt", f"{two}.reply"]
    with pytest.raises(UsageError, match=f"no new reply; what is open: {one}.reply"):
        take_replies(tmp_path, folder)
    (folder / f"{one}.reply").write_text("HI")
    assert take_replies(tmp_path, folder) == (tmp_path / "responses-2.jsonl", [one], [])


@pytest.mark.parametrize(
    ("reply", "text", "told"),
    [
        ("{}.reply", " \n", "is empty"),
        ("{}.reply", b"\xff\xfe", "cannot read"),
        ("82-x.reply", "hi", "is a reply to no question of this run; .* such as 43-abc-r1"),
        ("{}.txt", "hi", "holds no new reply"),
        (None, "", "no folder .*beamsearch questions"),
    ],
)
def test_a_reply_that_cannot_be_taken_is_named_and_none_is_taken(tmp_path, reply, text, told):
    name = waiting_run(tmp_path)
    folder = tmp_path / "questions"
    if reply is not None:
        folder.mkdir()
        path = folder / reply.format(name)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError, match=told):
        take_replies(tmp_path, folder)
    assert not list(tmp_path.glob("responses*"))


def test_a_run_that_waits_for_no_answers_says_what_it_waits_for(tmp_path):
    waits = {"status": "waiting", "stop_reason": "waits for a GPU step"}
    write_record(tmp_path / "run.json", NO_GPU.with_values(**waits))
    for verb in (write_questions, take_replies):
        with pytest.raises(UsageError, match="no answers; it is waiting: waits for a GPU step"):
            verb(tmp_path, tmp_path)
