"""Notes on techniques: which fit, and what a user who edits them is told."""

import pytest

from beamsearch.errors import UsageError
from beamsearch.llm.types import approximate_tokens
from beamsearch.proposer.prompts.notes import fitting, read_notes
from beamsearch.proposer.prompts.render import NOTES_BUDGET, render
from kernel_profiling.profile import FindingKind
from tests.proposer.situations import diagnosis_question

ALL = read_notes()


def files(findings, text="", capability=9.0):
    fit = fitting(ALL, findings=findings, text=text, capability=capability)
    return [note.file for note in fit]


def test_every_note_says_when_it_does_not_help_and_every_bottleneck_has_one():
    assert len(ALL) >= 19
    for note in ALL:
        assert "Not " in note.text, note.file
        assert approximate_tokens(note.text) < NOTES_BUDGET / 5, note.file
    aside = {FindingKind.AT_FLOOR}
    assert {kind for note in ALL for kind in note.findings} == set(FindingKind) - aside


def test_a_note_fits_by_finding_word_and_gpu_and_the_first_finding_leads():
    matrix = "C = tl.dot(a, b)"
    assert "warp_specialisation.md" not in files(["latency_not_hidden"], matrix)
    assert "warp_specialisation.md" in files(["latency_not_hidden"], matrix, capability=10.0)
    assert "tensor_cores.md" not in files(["idle_matrix_units"], "y = x + 1")
    assert files(["atomics", "register_spills"])[0] == "reductions.md"
    assert files(["register_spills", "atomics"])[0] == "occupancy.md"


def test_a_prompt_holds_the_notes_that_fit_and_no_others():
    prompt = render(diagnosis_question())
    assert "**Index arithmetic and constants.**" in prompt and "**Windows by axis.**" in prompt
    assert "**Online softmax.**" not in prompt and "**Split-K.**" not in prompt


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Split the sum.\n", "does not begin with a head"),
        ("---\ntitle: A\nfindings: slow\n---\nB\n", "slow"),
        ("---\ntitle: A\nfinding: atomics\n---\nB\n", "unknown key 'finding'"),
        ("---\nfindings: atomics\n---\nB\n", "lacks 'title'"),
        ("---\ntitle: A\nfindings: atomics\nmentions: (\n---\nB\n", "a.md"),
    ],
)
def test_a_note_that_cannot_be_read_is_named(tmp_path, text, says):
    (tmp_path / "a.md").write_text(text)
    with pytest.raises(UsageError, match="a.md") as caught:
        read_notes(tmp_path)
    assert says in str(caught.value)
