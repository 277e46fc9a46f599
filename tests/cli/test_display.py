"""What a run tells while it runs and at its end."""

import io
from pathlib import Path

from rich.console import Console

from beamsearch.cli.display import PlainDisplay
from beamsearch.cli.live import LiveDisplay, wrapped
from beamsearch.records.baselines import Baselines
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import RoundRecord
from beamsearch.records.run import Environment, RoundSummary, RunRecord, Totals
from beamsearch.records.trace import write_record
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.report.numbers import progress
from beamsearch.search.directions import Assignment, Plan
from beamsearch.settings import Settings
from kernel_profiling.profile import Floor

FLOOR = Floor(
    least_bytes=2_000_000_000,
    flops=0,
    bandwidth_gb_s=4000.0,
    flops_rate_tflop_s=989.0,
    bandwidth_source="datasheet",
    gpu="H200 SXM",
)


def modelled(time_ms: float) -> Measurement:
    return Measurement(source="modelled", time_ms=time_ms, gpu="H200 SXM")


def measured(time_ms: float, visit: str) -> Measurement:
    return Measurement(
        source="measured",
        time_ms=time_ms,
        p20_ms=time_ms,
        p80_ms=time_ms,
        count=50,
        gpu="NVIDIA H200",
        gpu_uuid="GPU-1",
        visit=visit,
    )


def run_record(gpu: str | None, baselines: Baselines, best: Measurement) -> RunRecord:
    return RunRecord(
        problem="43_Max_Pooling_3D",
        problem_dtype="bfloat16",
        settings=Settings(rounds=2),
        environment=Environment(
            gpu=gpu,
            gpu_uuid=None,
            driver=None,
            cuda=None,
            torch="2.11",
            triton="3.6",
            ncu=None,
            python="3.12",
            beamsearch="0",
            target="H200 SXM",
        ),
        who_thinks="playbook",
        status="running",
        floor=FLOOR,
        baselines=baselines,
        rounds=[
            RoundSummary(
                round=1, best="r1-w0-v1", best_time=best, speedup=4.0, correct=3, candidates=8
            )
        ],
        best="r1-w0-v1",
        totals=Totals(candidates=8, correct=3, wins=1, seconds=61.0),
        notes=["No NVIDIA GPU here: true shapes were not run"],
    )


NO_GPU = run_record(None, Baselines(absent={"eager": "no GPU"}), modelled(0.75))


ROUND = RoundRecord(round=1, candidates=[], win=True, beam=["r1-w0-v1"], running_best="r1-w0-v1")


def candidate(outcome: Outcome) -> Candidate:
    correct = outcome is Outcome.CORRECT
    return Candidate(
        name="r1-w0-v1",
        parent="r0-s0",
        round=1,
        worker=0,
        description="window sizes as constexpr",
        author="playbook",
        verdict=Verdict(
            outcome=outcome,
            stage=None if correct else Stage.SMOKE,
            reason="" if correct else "element (0, 3) is 1.5, expected 0.5",
            checks=[Check(stage=Stage.SMOKE, name="values", passed=correct)],
        ),
        measurement=modelled(0.75) if correct else None,
    )


PLAN = Plan(
    assignments=[
        Assignment(worker=worker, parent="r0-s0", direction=Direction(finding=finding))
        for worker, finding in enumerate(("latency_not_hidden", "narrow_access"))
    ]
)


def told(display: PlainDisplay, folder: Path = Path("runs/x")) -> None:
    """A run of one round."""
    display.run_started(NO_GPU, folder)
    display.round_started(1, PLAN)
    display.worker(0, "profiling r0-s0")
    display.candidate(candidate(Outcome.CORRECT))
    display.candidate(candidate(Outcome.WRONG))
    display.round_ended(ROUND, NO_GPU)
    display.note("ncu is missing")
    display.run_ended(NO_GPU, folder)


def test_a_round_of_before_a_stop_says_nothing_of_the_pace():
    stream = io.StringIO()
    display = PlainDisplay(stream)
    display.run_started(NO_GPU, Path("runs/x"))
    earlier = ROUND.model_copy(update={"seconds": 65.0})
    display.round_ended(earlier, NO_GPU)  # where a run that goes on stands
    assert stream.getvalue().splitlines()[-1].endswith("[1:05]")  # when it ended, not now
    display.round_started(2, PLAN)
    display.round_ended(ROUND.model_copy(update={"round": 2}), NO_GPU)
    assert display.activity.rounds_done == 0  # it may have been the rest of a round
    display.round_started(3, PLAN)
    display.round_ended(ROUND.model_copy(update={"round": 3}), NO_GPU)
    assert display.activity.rounds_done == 1


def test_baselines_measured_meanwhile_are_told_before_a_run_waits():
    # Given a run whose first round told the floor, and baselines that came later
    stream = io.StringIO()
    display = PlainDisplay(stream)
    known = run_record("NVIDIA H200", Baselines(), measured(0.9, "b"))
    display.run_started(known, Path("runs/x"))
    display.round_ended(ROUND, known)
    assert "baselines" not in stream.getvalue()

    # When it ends to wait, then they are told, once
    baselines = Baselines(eager=measured(6.0, "a"), anchor=measured(3.0, "a"))
    now = known.with_values(baselines=baselines, status="waiting")
    display.run_stopped(now)
    display.run_stopped(now)
    lines = stream.getvalue().splitlines()
    (told,) = [x for x in lines if x.startswith("baselines: ")]
    assert told == "baselines: eager 6 ms; beside them the input kernel 3 ms"
    assert len([x for x in lines if x.startswith("floor ")]) == 1


def test_plain_lines_mark_modelled_times_and_say_what_was_not_measured():
    stream = io.StringIO()
    told(PlainDisplay(stream))
    lines = stream.getvalue().splitlines()
    (said,) = [line for line in lines if "true shapes were not run" in line]
    assert said in lines[:2], "up front, and once"
    assert "  r1-w0-v1  ~0.75 ms  (window sizes as constexpr)" in lines
    assert any("wrong at smoke: element (0, 3) is 1.5" in line for line in lines)
    assert any("~4.00x over input, ~1.50x the floor" in line for line in lines)
    assert "note: ncu is missing" in lines
    assert "round 1: w0 r0-s0: latency_not_hidden; w1 r0-s0: narrow_access" in lines
    # Every modelled number carries its sign
    assert "0.75 ms" not in stream.getvalue().replace("~0.75 ms", "")


def test_after_the_screen_stands_what_the_run_came_to(tmp_path):
    write_record(tmp_path / "run.json", NO_GPU)
    stream = io.StringIO()
    display = LiveDisplay(Console(file=stream, force_terminal=True, width=120, height=30))
    told(display, tmp_path)
    before, _, after = stream.getvalue().partition("\x1b[?1049l")  # back to the first screen
    assert "true shapes were not run" in before and "2 rounds of 4 workers" in before
    assert "round 1 of 2: modelled win; best r1-w0-v1 ~0.75 ms" in after
    assert "note: ncu is missing" in after and "best: r1-w0-v1" in after
    assert "window sizes" not in after, "candidates are for `show`"


def test_lines_are_broken_between_words_and_paths_stay_whole():
    path = "/a/path/of-many/parts"
    assert wrapped(f"trace: {path}\n\none two three", 12) == [
        "trace:",
        f"    {path}",
        "",
        "one two",
        "    three",
    ]


def test_speedup_over_a_baseline_of_another_visit_goes_by_the_input_kernel():
    # Given baselines of visit a, where the input kernel took 3 ms, and a best kernel of visit b
    # that is 4 times as fast as the input kernel there
    baselines = Baselines(compile=measured(6.0, "a"), anchor=measured(3.0, "a"))
    run = run_record("NVIDIA H200", baselines, measured(0.9, "b"))

    # Then compile is 2 times the input, and the best 8 times as fast as compile: not 6.0 / 0.9
    assert progress(run).over == {"compile": 8.0}


def test_modelled_and_measured_are_never_compared():
    baselines = Baselines(compile=measured(6.0, "a"), anchor=measured(3.0, "a"))
    assert progress(run_record(None, Baselines(), modelled(0.5))).over == {}
    mixed = Baselines(compile=baselines.compile, anchor=modelled(3.0))
    assert progress(run_record(None, mixed, modelled(0.5))).over == {}
