"""Prompts rendered from real problems: what they hold, what they leave out, what they cost."""

import json
import re
from pathlib import Path

import pytest

from beamsearch.baselines.floor import measure_floor
from beamsearch.gpu import machine
from beamsearch.llm.types import approximate_tokens
from beamsearch.problem.problem import find_problem, list_problems, read_problem
from beamsearch.proposer.prompts import facts, outcomes
from beamsearch.proposer.prompts.outcomes import LESSON_CHARACTERS
from beamsearch.proposer.prompts.problem_card import make_card
from beamsearch.proposer.prompts.render import (
    BUDGET,
    KEPT_NOTES,
    MOST_TOKENS,
    asked_again,
    reask,
    render,
)
from beamsearch.proposer.questions import (
    Attempt,
    Diagnosis,
    DiagnosisQuestion,
    Earlier,
    FirstQuestion,
    Memory,
    Prediction,
    Shown,
    Sketch,
)
from beamsearch.proposer.replies import UnreadableReply, read_diagnosis, read_review
from beamsearch.records.candidate import OPEN, Direction
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.findings.findings import find
from kernel_profiling.ncu.line_counters import annotate
from kernel_profiling.ncu.report import read_report
from kernel_profiling.profile import Configuration, Costs, Profile, Rule
from tests.proposer.situations import (
    DIAGNOSIS,
    NCU,
    diagnosis_question,
    fields,
    first_question,
    long_memory,
    reflection_question,
    repair_question,
    review_question,
    variants_question,
)
from tests.thinker import PromptBroken, read_sections, think

DATA = Path(__file__).parents[1] / "data"
QUESTIONS = [diagnosis_question, variants_question, reflection_question]
ALL = [*QUESTIONS, first_question, repair_question, review_question]


@pytest.mark.parametrize("ask", ALL)
@pytest.mark.parametrize("problem", list_problems())
def test_every_problem_gives_a_prompt_that_can_be_answered(ask, problem):
    for modelled in (False, True):
        prompt = render(ask(problem, modelled=modelled))
        assert approximate_tokens(prompt) < BUDGET[ask().purpose]
        assert think(prompt)


@pytest.mark.parametrize("number", ["04", "36", "43", "77", "82"])
def test_a_prompt_from_a_profile_taken_on_an_h200_is_answered_from_it(number):
    recorded = DATA / f"input_{number}.profile.json"
    if recorded.is_file():
        profile = Profile.model_validate_json(recorded.read_text())
    else:
        profile = read_report(DATA / f"input_{number}.ncu-rep")
    known = fields(number, profile=profile)
    time_ms = sum(launch.duration_us for launch in profile.launches) / 1e3
    found = find(profile, known["floor"], time_ms)
    known |= {
        "findings": found,
        "direction": Direction(finding=found[0].kind.value),
        "parent_time": known["parent_time"].model_copy(update={"time_ms": time_ms}),
        "annotated_source": annotate(profile, known["parent_source"]),
    }
    prompt = render(DiagnosisQuestion(**known))
    assert approximate_tokens(prompt) < BUDGET["diagnosis"]
    assert f"{time_ms / known['floor'].time_ms:.3g} times the floor" in prompt
    diagnosis = read_diagnosis(think(prompt))
    assert diagnosis.bottleneck == found[0].kind
    assert diagnosis.evidence[: len(found[0].evidence)] == found[0].evidence
    assert diagnosis.expected_speedup <= found[0].gain_bound * 1.01  # the prompt rounds it


@pytest.mark.parametrize("ask", QUESTIONS)
def test_the_same_question_gives_the_same_text(ask):
    assert render(ask(memory=long_memory(9))) == render(ask(memory=long_memory(9)))


@pytest.mark.parametrize("ask", ALL)
def test_a_prompt_without_one_of_its_sections_cannot_be_answered(ask):
    prompt = render(ask())
    headings = [heading for heading in read_sections(prompt) if heading]
    assert len(headings) >= 5
    for heading in headings:
        if heading in ("What was tried to repair it", "Techniques that may fit"):
            continue  # one may do without
        without = prompt.replace(f"\n## {heading}\n", "\n", 1)
        with pytest.raises(PromptBroken):
            think(without)


def test_measured_times_are_told_with_spread_and_distance():
    prompt = render(diagnosis_question())
    assert "Time: 2.897 ms (measured with a cold L2, start and end of the call included; " in prompt
    assert "20% to 80% of calls 2.896 to 2.898 ms);" in prompt
    assert "Distance: 5.57 times the floor." in prompt
    assert "L1 104 GB, 43.5 times the least" in prompt
    assert "~" not in prompt


@pytest.mark.parametrize("ask", QUESTIONS)
def test_modelled_numbers_carry_a_tilde_and_are_called_modelled(ask):
    prompt = render(ask(modelled=True))
    assert "Time: ~3.117 ms (modelled)." in prompt and "Nothing was run" in prompt
    assert "Distance: ~6.26 times the floor." in prompt
    assert "DRAM ~2.4 GB, ~1 times the least (takes ~0.5 ms); L2, L1, registers missing" in prompt
    assert "at most ~3.1 times" in prompt and "at most 3.1" not in prompt
    assert "measured" not in prompt.split("## What the profile means")[0].replace(
        "modelled, not measured", ""
    )


def test_what_is_missing_is_said_to_be_missing():
    bare = NCU.model_copy(update={"traffic": {}, "launches": []})
    prompt = render(diagnosis_question(parent_time=None, floor=None, findings=[], profile=bare))
    for told in (
        "Time: not known.",
        "Floor: not known.",
        "DRAM, L2, L1, registers missing",
        "no finding",
    ):
        assert told in prompt


def test_counters_stay_out():
    prompt = render(diagnosis_question())
    assert "alu_busy" not in prompt and "76.7718" not in prompt


def test_the_kernel_is_shown_whole_and_a_fence_inside_it_does_no_harm():
    source = diagnosis_question().parent_source + '\nHELP = """\n```python\n```\n"""\n'
    prompt = render(variants_question(parent_source=source))
    assert source.rstrip() in prompt
    assert "HELP" in think(prompt)


@pytest.mark.parametrize("ask", QUESTIONS)
def test_oldest_memory_is_cut_to_the_budget_and_the_prompt_says_so(ask):
    question = ask(memory=long_memory(600))
    prompt = render(question)
    budget = BUDGET[question.purpose]
    assert 0.97 * budget < approximate_tokens(prompt) <= budget
    shown = [int(n) for n in re.findall(r"→|idea (\d+):", prompt) if n]
    assert shown == list(range(600 - len(shown), 600)), "the newest stay, in order"
    assert f"Left out to keep this short: {600 - len(shown)} older attempts." in prompt
    assert "lesson 2" in prompt and "def kernel_function(x," in prompt


def test_the_fastest_kernel_outlives_older_attempts_and_most_notes():
    memory = long_memory(600)
    slower, fastest = (
        Shown(
            name=name, description="streams", time="1 ms", source=f"# {name}\n" + "x = 1\n" * 1000
        )
        for name in ("r1-w0-v0", "r2-w0-v0")
    )
    prompt = render(variants_question(memory=memory.model_copy(update={"best": [slower, fastest]})))
    assert "# r2-w0-v0" in prompt and "# r1-w0-v0" not in prompt
    assert "1 slower kernel in full" in prompt
    assert approximate_tokens(prompt) <= BUDGET["variants"]


def test_a_long_diff_is_shortened_last():
    question = reflection_question(memory=long_memory(50))
    trial = question.trials[0].model_copy(update={"diff": "+ x = 1\n" * 6000})
    prompt = render(question.model_copy(update={"trials": [trial]}))
    assert approximate_tokens(prompt) <= MOST_TOKENS
    assert "50 older attempts" in prompt and "of every diff" in prompt
    nothing = "Nothing before this round."
    assert nothing not in prompt and nothing in render(reflection_question())


def test_reflection_sees_the_code_the_verdicts_and_what_moved():
    prompt = render(reflection_question())
    assert "+    D: tl.constexpr," in prompt
    assert "Verdict: wrong at smoke: 12 of 4800 values differ by 0.31" in prompt
    assert "What integer_overhead could give: 3.1 times before, 1.3 after" in prompt
    assert "2 times as fast as its parent" in prompt
    won, lost = prompt.split("## What came of it")[1].split("### `r1-w0-v1`")
    assert "- Traffic of one call:" in won and "the autotuner's choice BLOCK: 64" in won
    assert "Traffic" not in lost  # it is wrong, and nobody profiled it


def test_a_speedup_is_the_ratio_that_was_found_and_not_that_of_two_visits_times():
    question = reflection_question()
    won, lost = question.trials
    other = question.model_copy(
        update={"trials": [won.model_copy(update={"over_parent": 1.25}), lost]}
    )
    assert "1.25 times as fast as its parent" in render(other)
    other = question.model_copy(
        update={"trials": [won.model_copy(update={"over_parent": None}), lost]}
    )
    assert "as fast as its parent" not in render(other)


def test_a_second_plan_is_told_that_the_first_is_taken():
    direction = Direction(finding="narrow_access", plan=1)
    prompt = render(diagnosis_question(direction=direction))
    assert "`narrow_access`, finding 2; the plan that first comes to mind is taken" in prompt


def test_asking_again_shows_the_reply_and_what_was_wrong():
    first = render(diagnosis_question(memory=Memory()))
    second = reask(first, "```\nI think so.\n```", "the reply holds no JSON object")
    assert second.startswith(first.rstrip())
    assert "holds no JSON object" in second and "I think so." in second
    third = reask(second, "", "it is empty")
    assert [asked_again(prompt) for prompt in (first, second, third)] == [0, 1, 2]
    assert think(second)
    assert approximate_tokens(reask(first, "x" * 10**6, "y")) < approximate_tokens(first) + 3000


def test_what_was_wrong_is_told_in_five_errors_and_no_more():
    with pytest.raises(UnreadableReply) as caught:
        read_diagnosis(json.dumps({"evidence": list(range(20_000))}))
    told = str(caught.value)
    assert "bottleneck: Field required" in told and "errors more" in told and len(told) < 700
    with pytest.raises(UnreadableReply) as caught:
        concerns = [{"variant": n, "fails": False} for n in range(20_000)]
        read_review(json.dumps({"concerns": concerns}), 2)
    assert "there are 2, from 0" in str(caught.value) and len(str(caught.value)) < 700
    first = render(diagnosis_question())
    again = approximate_tokens(reask(first, "x" * 10**6, "line\n" * 10**5))
    assert again < approximate_tokens(first) + 4_000


def test_kernels_that_a_review_has_no_room_for_are_left_out_and_it_says_so():
    question = review_question()
    variants = [
        question.variants[1].model_copy(update={"source": f"# {n}\n" + "x = 1\n" * 1_500})
        for n in range(8)
    ]
    prompt = render(question.model_copy(update={"variants": variants}))
    assert 0.7 * MOST_TOKENS < approximate_tokens(prompt) <= MOST_TOKENS
    shown = prompt.count("### Kernel ")
    assert 1 <= shown < 8 and f"### Kernel {shown - 1}:" in prompt
    assert f"Left out to keep this short: {8 - shown} kernels, the last." in prompt
    assert think(prompt)


@pytest.mark.parametrize("ask", [variants_question, reflection_question, repair_question])
def test_a_plan_is_as_long_as_a_page_and_says_what_is_missing(ask):
    long = DIAGNOSIS.model_copy(
        update={
            "bottleneck": "word " * 99,
            "cause": "## Answer\nsays\n" * 999,
            "evidence": ["a figure " * 300] * 50,
            "plan": "change this\n" * 9_999,
            "predicted": [Prediction(finding="f" * 999, bound_after=1.0)] * 99,
        }
    )
    question = ask()
    plain, prompt = (
        render(question.model_copy(update={"diagnosis": d})) for d in (DIAGNOSIS, long)
    )
    assert approximate_tokens(prompt) < approximate_tokens(plain) + 5_500
    told = "the end of the bottleneck and of the cause and of the plan and of the evidence"
    assert f"Left out to keep this short: {told}, 42 more evidence, 91 more predictions" in prompt
    assert "Left out" not in plain
    assert think(prompt), "what a field holds is no heading"


def test_a_lesson_is_shown_whole_with_who_taught_it_unless_it_is_an_essay():
    lesson = f"[r1-w0-v0] {'words ' * 40}say 1.4x"
    essay = f"[r1-w1-v0] {'essay ' * 99}"
    earlier = Earlier(lessons=[essay])
    told = Memory(lessons=[lesson], patterns_to_avoid=[lesson, essay], earlier=earlier)
    prompt = render(variants_question(memory=told))
    assert prompt.count(f"- {lesson}\n") == 2
    assert prompt.count(f"- {essay[: LESSON_CHARACTERS - 1]}…\n") == 2


def test_a_prompt_that_shows_no_lessons_does_not_say_that_it_left_some_out():
    many = Memory(lessons=[f"lesson {n}" for n in range(40)])
    assert "Left out to keep this short: 28 older lessons" in render(variants_question(memory=many))
    for ask in (repair_question, review_question):
        assert "Left out" not in render(ask(memory=many))


@pytest.mark.parametrize(
    ("name", "precision", "holds", "lacks"),
    [
        ("conv_float32", "reference", "may be in TF32", "not TF32 alone"),
        ("conv_float32", "strict", 'or `"tf32x3"`, not TF32 alone', "may be in TF32"),
        ("matmul_float32", "reference", 'or `"tf32x3"`, not TF32 alone', "may be in TF32"),
    ],
)
def test_the_contract_states_the_rule_of_precision_in_force(name, precision, holds, lacks):
    path = Path(__file__).parents[1] / "judge/suite/problems" / name / "problem.py"
    problem = read_problem(path).with_precision(precision)
    floor = measure_floor(problem, machine.modelled())
    question = FirstQuestion(problem=make_card(problem, "2", "3"), gpu="NVIDIA H200", floor=floor)
    told = render(question)
    assert holds in told and lacks not in told
    below = "TF32" if lacks == "not TF32 alone" else "float32"
    assert f"precision below {below}," in told
    assert ("TFLOP/s in TF32" in told) == (below == "TF32")


def test_the_contract_states_the_judges_own_tolerance_and_limits():
    from beamsearch.judge.capture.launches import MOST_CONFIGS
    from beamsearch.judge.rejection import COMPILE_S
    from beamsearch.judge.verification.tolerance import SPREAD_SHARE, TOLERANCE

    for dtype in ("float16", "bfloat16", "float32"):
        assert facts.tolerance(dtype) == f"{100 * TOLERANCE[dtype]:g}%"
        assert facts.spread_share(dtype) == f"{100 * SPREAD_SHARE * TOLERANCE[dtype]:g}%"
    contract = render(diagnosis_question())
    assert f"at most {MOST_CONFIGS} configurations" in contract
    assert "above two minutes to compile" in contract and COMPILE_S == 120


def test_how_far_off_the_kernel_is_is_told_where_it_is_known():
    assert "Error on the problem's own inputs" not in render(diagnosis_question())
    told = render(diagnosis_question(parent_error=0.0016))
    assert "own inputs: rms 0.16% of the output's standard deviation." in told


def test_an_open_direction_is_asked_for_what_nobody_does_and_told_who_does_what():
    plain = render(diagnosis_question(others=["r0-s0: low_occupancy"]))
    assert "sent at the same time, to: r0-s0: low_occupancy" in plain
    assert "Plan what nobody does" not in plain
    free = render(diagnosis_question(direction=Direction(finding=OPEN)))
    assert "`open`: none of the findings. Plan what nobody does or did" in free
    assert "at the same time" not in free


def test_what_the_compiler_made_of_it_is_told():
    known = diagnosis_question().profile
    launch = known.launches[0].with_values(lowering=["line 3: a product of 16 x 16 x 16 by wgmma"])
    prompt = render(diagnosis_question(profile=known.with_values(launches=[launch])))
    assert "The compiler made of it: line 3: a product of 16 x 16 x 16 by wgmma." in prompt


def test_to_one_who_sees_no_line_numbers_it_is_told_by_the_code():
    known, code = variants_question().profile, variants_question().parent_source.splitlines()
    facts = ["lines 3, 4: 2 products", "lines 3 to 5: 5 products", "a turn of the loop at line 999"]
    launch = known.launches[0].with_values(lowering=facts)
    prompt = render(variants_question(profile=known.with_values(launches=[launch])))
    (told,) = (line for line in prompt.splitlines() if "The compiler made of it" in line)
    assert f"`{code[2]}`, `{code[3]}`: 2 products" in told
    assert f"`{code[2]}` to `{code[4]}`: 5 products" in told
    assert "the loop at line 999" in told  # there is no such line: nothing better is known


def test_a_finding_names_code_to_one_who_sees_no_line_numbers():
    code = variants_question().parent_source.splitlines()
    number = next(n for n, line in enumerate(code, 1) if "tl.load(" in line)
    known = (
        variants_question()
        .findings[0]
        .with_values(
            title=f"Narrow, most on line {number}",
            evidence=[
                f"line {number}: 9.6 sectors",
                f"line {number}: 3% of it: {code[number - 1]}",
            ],
            lines=[],
        )
    )
    prompt = render(variants_question(findings=[known]))
    shown = code[number - 1].strip()[:40]
    assert f"Narrow, most on `{shown}" in prompt and f"- `{shown}" in prompt
    assert f"line {number}: 3% of it: " in prompt  # its code stands there already
    assert f"line {number}: 9.6 sectors" in render(diagnosis_question(findings=[known]))


def test_what_becomes_of_buffers_is_said_where_there_are_some():
    plain = render(variants_question())
    assert "in training mode" not in plain
    assert variants_question().problem.notes() == []
    card = variants_question().problem.with_values(buffers=("running_mean",))
    (note,) = card.notes()
    assert "what it leaves in running_mean is compared" in note
    assert "asks for `running_mean` has to leave there" in render(
        variants_question().with_values(problem=card)
    )


def test_the_last_variant_goes_the_other_way_where_there_is_one():
    plain = render(variants_question())
    assert "each a different way to carry the plan out" in plain and "The other way" not in plain
    way = Sketch(idea="one program a row, no division at all", expected_speedup=1.25)
    prompt = render(variants_question(other_way=way))
    assert 'the first carries the plan out, the last carries out "The other way"' in prompt
    assert "The other way: one program a row, no division at all (expected: 1.25 times" in prompt
    three = render(variants_question(variants=3, other_way=way))
    assert "all but the last carry the plan out" in three


def test_a_plan_that_gained_nothing_is_taken_apart():
    assert "Nothing here beat its parent" not in render(reflection_question())
    prompt = render(reflection_question().model_copy(update={"gained": False}))
    assert "Nothing here beat its parent" in prompt
    assert '"dissection": "of the plan that gained nothing' in prompt


def test_a_long_kernel_costs_memory_and_notes_but_not_its_counters_and_newest_attempts():
    long = fields()["annotated_source"] + "\n" + "x = 1  # a line of a long kernel\n" * 600
    prompt = render(diagnosis_question(memory=long_memory(50), annotated_source=long))
    assert BUDGET["diagnosis"] < approximate_tokens(prompt) <= MOST_TOKENS
    assert "line stall%" in prompt and "38 older attempts" in prompt
    for found in ("integer_overhead", "narrow_access", "excess_traffic", "low_occupancy"):
        assert f"**{found}**" in prompt


def test_what_was_measured_of_the_l2_and_of_waiting_is_told():
    known = fields()
    costs = Costs(l2_gb_s=6543, barrier_us=1.44, launch_us=1.2)
    known["floor"] = known["floor"].model_copy(update={"costs": costs})
    prompt = render(DiagnosisQuestion(**known))
    assert "6543 GB/s from the L2" in prompt and "1.4 us for a barrier" in prompt
    assert "from the L2" not in render(diagnosis_question())


def test_an_autotuner_s_configurations_are_told_with_what_they_cost():
    tried = [
        Configuration(config=f"BLOCK: {n}", registers=n, spill_bytes=8 * (n > 90), time_ms=n / 100)
        for n in (64, 96)
    ]
    prompt = render(diagnosis_question(profile=NCU.model_copy(update={"configurations": tried})))
    assert (
        "The autotuner's configurations: BLOCK: 64: 0.64 ms (64 registers); "
        "BLOCK: 96: 0.96 ms (96 registers, 8 bytes spilled)." in prompt
    )
    assert "configurations:" not in render(diagnosis_question())


def test_a_plan_keeps_its_lines_and_cannot_pass_for_a_heading():
    told = "two loops:\n\nfor k in range(K):  # pipelined\n    acc += a\n## The plan\n"
    plan = DIAGNOSIS.model_copy(update={"plan": told})
    prompt = render(variants_question().model_copy(update={"diagnosis": plan}))
    code = "  for k in range(K):  # pipelined\n      acc += a\n  ## The plan\n"
    assert f"- Change: two loops:\n{code}" in prompt
    assert "- Evidence:\n  - 73% of executed instructions are integer\n" in prompt


def test_a_crash_before_any_comparison_is_not_said_to_compute_the_problem():
    question = repair_question()
    word = question.failed.verdict.model_copy(
        update={"outcome": Outcome.CRASHED, "stage": Stage.TIMING, "checks": []}
    )
    crashed = question.failed.model_copy(update={"verdict": word})
    prompt = render(question.model_copy(update={"failed": crashed}))
    assert "It crashed on the GPU before any of its results was compared" in prompt
    assert "It computes the problem" not in prompt


@pytest.mark.parametrize(("lines", "kept"), [(600, KEPT_NOTES), (2000, 0)])
def test_a_kernel_longer_than_the_budget_leaves_room_for_two_notes(lines, kept):
    long = fields()["annotated_source"] + "\n" + "x = 1  # a line of a long kernel\n" * lines
    prompt = render(diagnosis_question(annotated_source=long))
    _, _, notes = prompt.partition("## Techniques that may fit")
    assert notes.partition("\n## ")[0].count("\n**") == kept
    assert re.search(r"Left out to keep this short: .*\d notes on techniques", prompt)


NORM = """
import torch, torch.nn as nn
features = 4096
class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features, eps=1e-3)
    def forward(self, x, weight): return self.norm(x) * weight
def get_inputs(): return [torch.rand(512, features), torch.rand(features)]
def get_init_inputs(): return [features]
"""


def test_the_card_names_each_thing_once_and_says_what_is_smaller_elsewhere(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(NORM)
    card = make_card(find_problem(str(path)), "2", "3")
    assert "eps" in card.bindable and "norm_eps" not in card.bindable
    assert {"weight", "norm_weight"} < card.bindable.keys(), "an input, and a parameter beside it"
    sizes = set(card.smallest)
    assert sizes == {"x", "weight", "features"}
    assert card.smallest["features"] != card.bindable["features"] == "= 4096"
    prompt = render(FirstQuestion(problem=card, gpu="NVIDIA H200", floor=None))
    assert f"(the smallest: `features` {card.smallest['features']}" in prompt


def test_a_plan_of_several_lines_that_is_shown_whole_is_not_called_cut():
    told = {
        "bottleneck": "b",
        "cause": "one line\nand another",
        "evidence": [],
        "plan": "a\nb\n\nc",
    }
    assert outcomes.plan(Diagnosis(**told))["left_out"] == ""
    long = outcomes.plan(Diagnosis(**told | {"plan": "a line\n" * 2_000}))
    assert long["left_out"] == "the end of the plan" and long["plan"].endswith("…")


def launched(**fields):
    launch = NCU.launches[0].with_values(**fields)
    small = launch.with_values(name="pack", share=0.002, duration_us=3.0, rules=[ADVICE])
    return NCU.with_values(launches=[launch.with_values(share=0.998, rules=[ADVICE]), small])


ADVICE = Rule(name="Shared Load Bank Conflicts", message="Do.", estimated_speedup_percent=40.0)


def test_a_launch_tells_what_an_sm_has_room_for_and_a_small_one_no_more_than_its_time():
    profile = launched(load_bits=0, registers=240, shared_bytes=77_000)
    prompt = render(diagnosis_question(profile=profile))
    assert "(an SM takes 2 by registers, 2 by shared memory, 16 by warps)" in prompt
    assert "every load a copy of a block" in prompt
    assert (
        "- Launch `pack`: 119164 programs of 128 threads, 0.003 ms, 0.2% of the call.\n" in prompt
    )
    assert "in `max_pool3d_kernel` (estimates 40%)" in prompt
    assert "in `pack`" not in prompt, "0.08% of the call"


def test_times_that_traffic_takes_are_told_where_the_speed_is_known():
    known = fields()
    costs = Costs(l2_gb_s=5000, barrier_us=1.44, launch_us=1.2)
    known["floor"] = known["floor"].model_copy(update={"costs": costs})
    told = render(DiagnosisQuestion(**known))
    assert re.search(r"L2 3.587 GB, [\d.]+ times the least \(takes 0.717 ms\)", told)


def test_what_was_tried_tells_the_time_it_started_from_and_what_was_timed_again():
    attempt = Attempt(
        name="r1-w0-v1",
        parent="r0-s0",
        direction=None,
        description="six planes",
        outcome="correct",
        time="2.621 ms",
        parent_time="2.712 ms",
        speedup_over_parent=0.994,
        is_timed_again=True,
        expected=1.15,
    )
    prompt = render(diagnosis_question(memory=Memory(attempts=[attempt])))
    assert "From `r0-s0` (2.712 ms):\n" in prompt
    assert "→ 2.621 ms, 0.994 x timed again in turns (1.15 expected)" in prompt
