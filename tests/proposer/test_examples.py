"""The examples under docs/prompts are what the templates give, within budget, and answerable."""

from beamsearch.llm.types import approximate_tokens
from beamsearch.proposer.prompts.render import BUDGET, render
from tests.proposer.examples import DATA, FOLDER, examples, questions
from tests.thinker import think


def test_the_committed_prompts_are_those_the_templates_give():
    wanted = examples()
    there = {path.name: path.read_text() for path in FOLDER.iterdir()}
    stale = sorted(n for n in wanted.keys() | there.keys() if wanted.get(n) != there.get(n))
    assert not stale, "write them anew: python -m tests.proposer.examples"


def test_each_is_within_its_budget_and_holds_what_an_answer_needs():
    files = sorted(DATA.glob("*.json"))
    assert len(files) == 5
    for path in files:
        for purpose, question in questions(path).items():
            prompt = render(question)
            assert approximate_tokens(prompt) <= BUDGET[purpose], (path.name, purpose)
            assert think(prompt)
