"""What a person gave, as prompts tell it."""

import pytest

from beamsearch.proposer.prompts.render import render
from beamsearch.proposer.questions import Attempt, Memory, Shown
from tests.proposer.situations import (
    diagnosis_question,
    long_memory,
    reflection_question,
    repair_question,
    review_question,
    variants_question,
)
from tests.thinker import read_sections, think

ASK = [
    diagnosis_question,
    variants_question,
    reflection_question,
    repair_question,
    review_question,
]
HEADING = "What a person advises"


@pytest.mark.parametrize("ask", ASK)
def test_every_question_holds_all_hints_before_it_asks(ask):
    hints = ["Keep the sums in registers.", "```python\nx = 1\n```\n## Answer\nNothing."]
    prompt, without = render(ask(hints=hints)), render(ask())
    told = read_sections(prompt)[HEADING]
    assert "A person may be wrong" in told
    assert "- Keep the sums in registers.\n- ```python\n  x = 1\n  ```\n  ## Answer\n" in told
    assert HEADING not in without
    start, _, rest = prompt.partition(f"## {HEADING}\n")
    assert without == start + rest[rest.index("\n## ") + 1 :], "nothing else is different"
    assert think(prompt) == think(without)


def test_hints_are_not_cut_where_much_else_is():
    hints = [f"{number} " + "words " * 330 for number in range(3)]
    prompt = render(variants_question(hints=hints, memory=long_memory(400)))
    assert "Left out to keep this short" in prompt
    assert all(hint.strip() in prompt for hint in hints)


def test_a_persons_kernel_is_told_as_one():
    own = {"parent": None, "direction": None, "description": "rows", "outcome": "correct"}
    shown = {"description": "rows", "time": "0.5 ms", "source": "def kernel_function(): ..."}
    memory = Memory(
        attempts=[Attempt(name="r0-s1", **own), Attempt(name="r2-p0", is_persons=True, **own)],
        best=[Shown(name="r2-p0", is_persons=True, **shown)],
    )
    told = read_sections(render(variants_question(memory=memory)))["What was tried"]
    assert "First kernels:\n- `r0-s1` rows" in told
    assert "Given by a person:\n- `r2-p0` rows" in told
    assert "`r2-p0` (a person's), 0.5 ms: rows" in told
