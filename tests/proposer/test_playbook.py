"""The playbook's answers: read like a model's, new every time, the same for the same question."""

from __future__ import annotations

from typing import Any

import pytest

from beamsearch.problem.kernel import fingerprint
from beamsearch.proposer.playbook.playbook import NOTHING_LEFT, Playbook, move
from beamsearch.proposer.playbook.rewrites.constants import SIZES
from beamsearch.proposer.questions import Attempt, Memory, VariantsQuestion
from beamsearch.proposer.replies import (
    UnreadableReply,
    read_diagnosis,
    read_reflection,
    read_variants,
)
from beamsearch.records.candidate import Direction
from tests.proposer.situations import (
    diagnosis_question,
    reflection_question,
    variants_question,
)

FINDINGS = ("integer_overhead", "narrow_access", "excess_traffic", "low_occupancy")


def answer(question: Any) -> str:
    return Playbook().answer(question, "").text


def asked(
    problem: str, worker: int, seen: list[str], variants: int = 2, **changes: Any
) -> VariantsQuestion:
    direction = Direction(finding=FINDINGS[worker % len(FINDINGS)])
    place = {"worker": worker, "share": worker, "shares": 4, "direction": direction}
    question = variants_question(problem, variants, **place, **changes)
    return question.model_copy(update={"seen": seen})


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["04", "36", "43", "77", "82"])
def test_workers_of_a_round_propose_different_kernels(problem: str) -> None:
    prints = []
    for worker in range(4):
        variants = read_variants(answer(asked(problem, worker, [])), "")
        assert len(variants) == 2
        prints += [fingerprint(v.source) for v in variants]
    assert len(set(prints)) == 8


def test_the_first_round_composes_and_says_what_it_did() -> None:
    first = read_variants(answer(asked("43", 0, [])), "")[0]
    assert "made constexpr" in first.description
    assert "; " in first.description


def test_the_same_question_has_the_same_answer() -> None:
    for question in (asked("82", 1, []), diagnosis_question("82"), reflection_question("82")):
        assert answer(question) == answer(question)


def test_what_was_seen_is_not_proposed_again_until_nothing_is_left() -> None:
    seen: list[str] = []
    for _ in range(300):
        text = answer(asked("04", 0, seen, variants=8))
        try:
            variants = read_variants(text, "")
        except UnreadableReply as said:
            assert NOTHING_LEFT in str(said), "told as the reason why there is no kernel"
            break
        prints = [fingerprint(v.source) for v in variants]
        assert not set(prints) & set(seen)
        assert len(set(prints)) == len(prints)
        seen += prints
    else:
        raise AssertionError("there is always something new")
    assert "```" not in text
    assert len(seen) > 20


def test_a_move_that_lost_elsewhere_comes_later() -> None:
    before = read_variants(answer(asked("04", 0, [], variants=1, round=2)), "")[0]
    move = before.description
    lost = Attempt(
        name="r1-w0-v0",
        parent="r0-s9",
        direction=None,
        description=move,
        outcome="correct",
        speedup_over_parent=0.5,
    )
    memory = Memory(attempts=[lost])
    after = read_variants(answer(asked("04", 0, [], variants=1, round=2, memory=memory)), "")[0]
    assert after.description != before.description


def test_sizes_that_break_a_kernel_are_left_runtime_and_count_against_no_other_move() -> None:
    def proposed(outcomes: list[str]) -> list[str]:
        attempts = [
            Attempt(name=f"r1-w0-v{n}", parent="r0-s0", direction=None, description=what, outcome=o)
            for n, (what, o) in enumerate(zip(first, outcomes, strict=True))
        ]
        question = asked("43", 0, [], variants=4, round=2, memory=Memory(attempts=attempts))
        return [v.description for v in read_variants(answer(question), "")]

    question = asked("43", 0, [], variants=2, round=2)
    first = [v.description for v in read_variants(answer(question), "")]
    assert all(what.startswith(SIZES) for what in first)
    assert any(what.startswith(SIZES) for what in proposed(["compile_error", "correct"]))
    broken = proposed(["compile_error", "crashed"])
    assert broken and not any(what.startswith(SIZES) for what in broken)
    assert broken[0] == move(first[0])


def test_a_diagnosis_names_the_finding_its_evidence_and_a_plan() -> None:
    diagnosis = read_diagnosis(answer(diagnosis_question("43")))
    assert diagnosis.bottleneck == "integer_overhead"
    assert "73% of executed instructions are integer" in diagnosis.evidence
    assert "lines 17, 18, 30" in diagnosis.cause
    assert "constexpr" in diagnosis.plan
    assert diagnosis.expected_speedup == 3.1


def test_a_reflection_compares_and_teaches() -> None:
    reflection = read_reflection(answer(reflection_question("43")))
    assert "Expected up to 1.80 times faster" in reflection.summary
    assert reflection.lessons == ["sizes are constexpr was 2.0 times faster than r0-s0"]
    assert any("eight outputs a thread" in p for p in reflection.patterns_to_avoid)


def test_no_problem_is_known_by_name() -> None:
    question = asked("43", 0, [])
    renamed = question.problem.model_copy(update={"name": "something_else"})
    assert answer(question) == answer(question.model_copy(update={"problem": renamed}))
