"""Asking a real HTTP server that falters, refuses, or is not there."""

import asyncio
import socket
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

import pytest

from beamsearch.errors import EndpointError, OutOfBudget
from beamsearch.llm.budget import Budget, Limits, Paid, Spent
from beamsearch.llm.endpoint import DEFAULT_MODEL, Endpoint
from beamsearch.llm.openai_chat import ChatModel, Retries, check_endpoint
from beamsearch.llm.prices import read_prices
from beamsearch.llm.types import Ticket
from tests.server import Script, serving

KEY = "sk-verysecret-0123456789"
TICKET = Ticket(purpose="diagnosis", round=1, worker=0)
HASTY = Retries(attempt_s=5, deadline_s=30, first_wait_s=0.02, longest_wait_s=0.1)


def echo(prompt):
    return f"you said {prompt}"


def chat(base_url, model=DEFAULT_MODEL, key=KEY, retries=HASTY):
    return ChatModel(model, Endpoint(base_url, key), retries)


def free_port():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_an_answer_comes_with_what_it_cost():
    with serving(script=Script(key=KEY, think=echo)) as base_url:
        answer = chat(base_url).ask("hello there", TICKET)
    assert answer.text == "you said hello there"
    assert answer.model == DEFAULT_MODEL
    assert (answer.tokens_in, answer.tokens_cached, answer.tokens_out) == (2, 16, 5)
    assert answer.tokens_reasoning is None and answer.retries == 0


def test_a_notebook_which_has_an_event_loop_of_its_own_is_answered():
    async def cell(base_url):
        return chat(base_url).ask("hello there", TICKET)

    with serving(script=Script(key=KEY, think=echo)) as base_url:
        assert asyncio.run(cell(base_url)).text == "you said hello there"


def test_an_answer_in_parts_is_one_text_with_the_ends_of_lines_that_files_keep():
    parts = [{"type": "text", "text": "one\r\ntwo"}, {"type": "text", "text": "\rthree \ud800"}]
    with serving(script=Script(think=lambda prompt: parts)) as base_url:
        assert chat(base_url).ask("hello", TICKET).text == "one\ntwo\nthree \ufffd"


def test_tokens_that_the_endpoint_does_not_tell_are_estimated_and_kept_within_limits():
    budget = Budget(Limits(tokens=30_000), read_prices(), Spent())
    with serving(["untold"] * 99, Script(think=echo)) as base_url:
        model = Paid(chat(base_url), budget)
        first = model.ask("x" * 3_000, TICKET)
        assert first.estimated and (first.tokens_in, first.tokens_out) == (1_000, 1_003)
        with pytest.raises(OutOfBudget):  # 2003 tokens a call, beside at least 9000 under way
            for _ in range(20):
                model.ask("x" * 3_000, TICKET)


def test_what_passes_is_retried_until_the_same_answer_comes():
    faults = ["500", "drop", "invalid_json", "html", "empty_choices", "429"]
    script = Script(think=echo)
    with serving(faults, script) as base_url:
        started = time.monotonic()
        answer = chat(base_url).ask("hello", TICKET)
        seconds = time.monotonic() - started
    assert answer.text == "you said hello"
    assert answer.retries == len(faults) == len(script.requests) - 1
    assert seconds >= 1, "Retry-After asked for one second"


@pytest.mark.parametrize("fault", ["slow", "endless"])
def test_a_reply_that_does_not_end_is_a_failed_try(fault):
    retries = Retries(attempt_s=0.5, deadline_s=30, first_wait_s=0.02)
    with serving([fault], Script(think=echo)) as base_url:
        answer = chat(base_url, retries=retries).ask("hello", TICKET)
    assert answer.text == "you said hello" and answer.retries == 1
    assert answer.latency_s < 3


def test_the_deadline_bounds_a_call_whatever_the_endpoint_does():
    retries = Retries(attempt_s=5, deadline_s=0.8, tries=1000, first_wait_s=0.05)
    for faults, told in ((["500"] * 999, "HTTP 500"), (["endless"] * 9, "no whole answer")):
        with serving(faults, Script(think=echo)) as base_url:
            started = time.monotonic()
            with pytest.raises(EndpointError, match=told):
                chat(base_url, retries=retries).ask("hello", TICKET)
            assert time.monotonic() - started < 2.5


def test_tries_are_counted_and_told():
    retries = Retries(tries=3, first_wait_s=0.01)
    script = Script(think=echo)
    with (
        serving(["500"] * 9, script) as base_url,
        pytest.raises(EndpointError, match=r"no answer in 3 tries .* HTTP 500"),
    ):
        chat(base_url, retries=retries).ask("hello", TICKET)
    assert len(script.requests) == 3


@pytest.mark.parametrize(
    ("fault", "model", "told"),
    [
        ("quota", DEFAULT_MODEL, "quota is used up"),
        ("none", "thinker-smal", "thinker-small"),  # a slip of the pen: the near name is told
    ],
)
def test_what_no_waiting_cures_fails_at_once(fault, model, told):
    script = Script(think=echo)
    with serving([fault], script) as base_url, pytest.raises(EndpointError, match=told):
        chat(base_url, model).ask("hello", TICKET)
    assert len(script.requests) <= 1


def test_nobody_listening_fails_at_once_and_says_where():
    port = free_port()
    started = time.monotonic()
    with pytest.raises(EndpointError, match=f"nobody listens at http://127.0.0.1:{port}/v1"):
        chat(f"http://127.0.0.1:{port}/v1", retries=Retries()).ask("hello", TICKET)
    assert time.monotonic() - started < 5


def test_a_wrong_key_fails_at_once_and_appears_nowhere(capfd):
    # The server's refusal quotes the key, as real ones do.
    with serving(script=Script(key="another")) as base_url:
        model = chat(base_url)
        with pytest.raises(EndpointError, match="OPENAI_API_KEY") as caught:
            model.ask("hello", TICKET)
    told = "".join(traceback.format_exception(caught.value))
    told += "".join(map(str, capfd.readouterr())) + repr(model.endpoint) + repr(vars(model))
    assert KEY not in told and "verysecret" not in told


def test_a_key_that_an_endpoint_echoes_does_not_reach_the_trace():
    with serving(script=Script(think=lambda prompt: f"your key is {KEY}")) as base_url:
        assert KEY not in chat(base_url).ask("hello", TICKET).text
    broken = Script(think=lambda prompt: (_ for _ in ()).throw(broken_with_key()))
    with serving(script=broken) as base_url, pytest.raises(EndpointError) as caught:
        chat(base_url).ask("hello", TICKET)
    assert "HTTP 400" in str(caught.value) and "verysecret" not in str(caught.value)


def broken_with_key():
    from tests.thinker import PromptBroken

    return PromptBroken(f"with {KEY} and sk-verysecret-****6789")


def test_workers_ask_at_the_same_time():
    with serving(["slow"] * 4, Script(think=echo)) as base_url, ThreadPoolExecutor(4) as pool:
        started = time.monotonic()
        model = chat(base_url, retries=Retries())
        answers = list(pool.map(lambda n: model.ask(f"{n}", TICKET).text, range(4)))
        assert time.monotonic() - started < 6, "one after the other takes eight seconds"
    assert answers == [f"you said {n}" for n in range(4)]


def test_doctor_is_told_what_to_do(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert "set OPENAI_API_KEY" in check_endpoint(env={})[1]
    with serving(script=Script(key=KEY)) as base_url:
        good = {"OPENAI_API_KEY": KEY, "OPENAI_BASE_URL": base_url}
        assert check_endpoint(env=good)[0]
        assert "thinker-small" in check_endpoint("thinker", good)[1]
        _, refused = check_endpoint(env=good | {"OPENAI_API_KEY": "sk-wrongone"})
        assert "refuses the key" in refused and "sk-wrongone" not in refused
        _, elsewhere = check_endpoint(env=good | {"OPENAI_BASE_URL": base_url + "/nowhere"})
        assert elsewhere.startswith(f"{base_url}/nowhere answers, but lists no models")
    assert "nobody listens" in check_endpoint(env=good)[1]
