"""What later prompts are told of earlier rounds."""

from beamsearch.proposer.prompts.outcomes import attempt
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.run.memory.attempts import condense

RIGHT = Verdict(
    outcome=Outcome.CORRECT, checks=[Check(stage=Stage.SMOKE, name="small", passed=True)]
)
WRONG = Verdict(outcome=Outcome.WRONG, stage=Stage.SMOKE, reason="every tenth value")


def candidate(name, time_ms=None, parent="r0-s0", finding="latency_not_hidden", **more):
    time = time_ms and Measurement(source="modelled", time_ms=time_ms, gpu="H200")
    return Candidate(
        name=name,
        parent=parent,
        round=1,
        direction=Direction(finding=finding) if parent else None,
        description=f"idea of {name}",
        author="m",
        fingerprint=name,
        verdict=RIGHT if time_ms else WRONG,
        measurement=time,
        **more,
    )


def remember(candidates, sources):
    times = {c.name: c.time_ms for c in candidates if c.verdict.correct}
    return condense(candidates, times, [], lambda c: sources[c.name])


def test_the_best_kernels_are_shown_slowest_first_and_a_second_form_of_one_is_not():
    pages = {letter: "".join(f"{letter}{n}\n" for n in range(30)) for letter in "abc"}
    sources = {
        "r0-s0": pages["a"],
        "r1-w0-v0": pages["b"],
        "r1-w0-v1": pages["b"].replace("b7\n", "b7 = 4\n"),
        "r1-w1-v0": pages["c"],
    }
    times = {"r0-s0": 2.4, "r1-w0-v0": 2.3, "r1-w0-v1": 2, "r1-w1-v0": 2.2}
    made = [candidate(name, ms, None if name == "r0-s0" else "r0-s0") for name, ms in times.items()]
    best = remember(made, sources).best
    assert [(k.name, k.time) for k in best] == [
        ("r0-s0", "~2.4 ms"),
        ("r1-w1-v0", "~2.2 ms"),
        ("r1-w0-v1", "~2 ms"),
    ]


def test_a_kernel_far_behind_has_a_line_and_no_page():
    times = {"r0-s0": 9, "r0-s1": 9.5, "r1-w0-v0": 2, "r1-w1-v0": 5}
    made = [candidate(n, ms, "r0-s0" if n[1] == "1" else None) for n, ms in times.items()]
    pages = {name: "".join(f"{name} {n}\n" for n in range(30)) for name in times}
    memory = remember(made, pages)
    assert [kernel.name for kernel in memory.best] == ["r1-w0-v0"]
    told = {attempt.name: attempt.time for attempt in memory.attempts}
    assert told == {"r0-s1": "~9.5 ms", "r1-w0-v0": "~2 ms", "r1-w1-v0": "~5 ms"}


def test_an_idea_counts_once_however_often_it_is_repaired():
    made = [
        candidate("r0-s0", 8, None),
        candidate("r1-w0-v1"),
        candidate("r1-w0-v1-f1", repair_of="r1-w0-v1"),
        candidate("r1-w0-v1-f2", 2, repair_of="r1-w0-v1-f1"),
        candidate("r1-w0-v10"),
        candidate("r1-w1-v0", 16, finding="atomics"),
    ]
    memory = remember(made, {c.name: c.name for c in made})
    told = [(i.finding, i.tried, i.correct, i.best_speedup) for i in memory.ideas]
    assert told == [("latency_not_hidden", 2, 1, 4.0), ("atomics", 1, 1, 0.5)]
    assert [a.repair_of for a in memory.attempts if a.name.endswith("-f2")] == ["r1-w0-v1-f1"]


def test_what_a_plan_expected_stands_beside_what_came_of_it():
    made = [candidate("r0-s0", 8, None), candidate("r1-w0-v0", 10, worker=0)]
    times = {c.name: c.time_ms for c in made}
    memory = condense(made, times, [], lambda c: c.name, expected={(1, 0): 1.5, (2, 0): 9.0})
    assert "~0.8 x (1.5 expected)" in attempt(memory.attempts[0])
