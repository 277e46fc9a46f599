"""A model that thinks, over HTTP; and who thinks where none is configured."""

import pytest

from beamsearch.errors import EndpointError
from beamsearch.llm.endpoint import DEFAULT_MODEL, Endpoint
from beamsearch.llm.openai_chat import ChatModel, Retries
from beamsearch.problem.kernel import check_source, fingerprint
from beamsearch.proposer.factory import ModelProposer, make_proposer
from beamsearch.proposer.prompts.render import reask, render
from beamsearch.proposer.replies import (
    UnreadableReply,
    read_diagnosis,
    read_reflection,
    read_variants,
)
from beamsearch.settings import Settings
from tests.proposer.situations import diagnosis_question, reflection_question, variants_question
from tests.server import Script, serving


@pytest.fixture
def model():
    with serving() as base_url:
        yield ModelProposer(
            ChatModel(DEFAULT_MODEL, Endpoint(base_url), Retries(first_wait_s=0.01))
        )


def test_a_model_diagnoses_writes_and_reflects(model):
    question = diagnosis_question()
    reply = model.answer(question, render(question))
    diagnosis = read_diagnosis(reply.text)
    assert diagnosis.bottleneck == "integer_overhead"
    assert "73% of executed instructions are integer" in diagnosis.evidence
    assert reply.author == DEFAULT_MODEL and reply.tokens_in > 500 and reply.tokens_out > 20

    question = variants_question(variants=3)
    variants = read_variants(model.answer(question, render(question)).text, question.parent_source)
    sources = [question.parent_source, *(variant.source for variant in variants)]
    for source in sources:
        check_source(source)
    assert len({fingerprint(source) for source in sources}) == 4
    assert variants[0].description.startswith("Sizes are tl.constexpr")

    question = reflection_question()
    reflection = read_reflection(model.answer(question, render(question)).text)
    assert "eight outputs a thread" in reflection.patterns_to_avoid
    assert any("2 times as fast" in lesson for lesson in reflection.lessons)


def test_a_reply_that_says_nothing_is_read_after_asking_again():
    script = Script()
    with serving(["prose"], script) as base_url:
        model = ModelProposer(ChatModel(DEFAULT_MODEL, Endpoint(base_url)))
        question = diagnosis_question()
        prompt = render(question)
        reply = model.answer(question, prompt)
        with pytest.raises(UnreadableReply) as caught:
            read_diagnosis(reply.text)
        again = model.answer(question, reask(prompt, reply.text, caught.value))
    assert read_diagnosis(again.text).bottleneck == "integer_overhead"
    assert len(script.requests) == 2


class Recorded:
    """A chat that answers from a recording: what batch files and replay will be."""

    name = "recorded"

    def __init__(self):
        self.tickets = []

    def ask(self, prompt, ticket):
        from beamsearch.llm.types import Completion

        self.tickets.append(ticket)
        return Completion(text="{}", model="recorded")


def test_a_chat_is_told_which_question_it_answers():
    chat = Recorded()
    question = reflection_question(round=4, worker=2)
    prompt = render(question)
    ModelProposer(chat).answer(question, prompt)
    ModelProposer(chat).answer(question, reask(prompt, "{}", "nothing in it"))
    told = [(t.purpose, t.round, t.worker, t.attempt) for t in chat.tickets]
    assert told == [("reflection", 4, 2, 0), ("reflection", 4, 2, 1)]


def test_who_thinks_follows_the_settings_and_what_is_configured(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    key = {"OPENAI_API_KEY": "sk-1234"}
    assert make_proposer(Settings(), {}).name == "playbook"
    assert make_proposer(Settings(llm="playbook"), key).name == "playbook"
    assert make_proposer(Settings(), key).name == DEFAULT_MODEL
    assert make_proposer(Settings(llm="openai", model="other"), key).name == "other"
    for settings in (Settings(llm="openai"), Settings(model="other")):
        with pytest.raises(EndpointError, match="set OPENAI_API_KEY"):
            make_proposer(settings, {})
    (tmp_path / ".env").write_text("OPENAI_API_KEY=sk-1234\n")
    assert make_proposer(Settings(), {}).name == DEFAULT_MODEL


def test_half_a_character_in_an_answer_can_be_written_down():
    answer = '{"bottleneck": "\\ud83d", "cause": "", "evidence": ["\\ud83d\\ude00"], "plan": ""}'
    diagnosis = read_diagnosis(answer)
    assert (diagnosis.bottleneck, diagnosis.evidence) == ("\ufffd", ["\U0001f600"])
    assert read_diagnosis(diagnosis.model_dump_json()) == diagnosis
