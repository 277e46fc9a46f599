"""Sweeps after a win: which forms, which of them are judged, and that a stop loses none of it."""

from pathlib import Path

import pytest

from beamsearch.cli.live import make_display
from beamsearch.errors import Stopped
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.proposer.questions import Memory
from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.job import JudgeJob, Judgement, ProfileJob, Sweep, SweepJob
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import Trace, read_record
from beamsearch.records.tuning import Tuning
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.run.candidates import source_fingerprint
from beamsearch.run.context import RoundView, Shared
from beamsearch.run.results import tuning_totals
from beamsearch.run.stop import StopToken
from beamsearch.run.tuning import FILE, Tuner, forms_of
from beamsearch.run.worker import Worker
from beamsearch.search.directions import Assignment
from beamsearch.settings import Settings
from kernel_profiling.profile import Floor, Launch, Profile
from tests.judge.conftest import SCALE_KERNEL

NAMED = SCALE_KERNEL.replace("1024", "BLOCK").replace(
    "    scale_kernel[", "    BLOCK = 1024\n    scale_kernel["
)
DOUBLED = NAMED.replace("2 * x + bias", "x + x + bias")


def test_forms_change_one_setting_each_nearest_first_and_grids_follow():
    for source in (SCALE_KERNEL, NAMED):
        forms = forms_of(source, 4)
        assert list(forms) == [
            "num_warps 8",
            "num_warps 2",
            "BLOCK 2048, num_warps 8",
            "BLOCK 2048",
        ]
        assert "1024" not in forms["BLOCK 2048"] and "num_warps" not in forms["BLOCK 2048"]
    assert len(forms_of(NAMED, 100)) > 10
    assert not any("stages" in setting for setting in forms_of(NAMED, 100)), "nothing to pipeline"
    assert forms_of("not python at all", 4) == {}


TWO = SCALE_KERNEL.replace("scale_kernel", "other_kernel").split("@triton.jit")[1]
BOTH = SCALE_KERNEL + "\n@triton.jit" + TWO.replace("kernel_function", "helper")


def test_every_kernel_of_a_call_has_its_turn():
    forms = list(forms_of(BOTH, 4))
    assert [form.split(":")[0] for form in forms] == ["scale_kernel", "other_kernel"] * 2
    # Of one that is there for other shapes, no form is another kernel at these
    assert list(forms_of(BOTH, 4, ["scale_kernel"])) == list(forms_of(SCALE_KERNEL, 4))
    # Where one takes next to no time, the form of the other still says which it is of
    of_one = forms_of(BOTH, 4, ["scale_kernel", "other_kernel"], ["other_kernel"])
    assert {form.split(":")[0] for form in of_one} == {"other_kernel"}
    # Where one is tuned by its author, the form of the other still says which it is of
    tuned = BOTH.replace("@triton.jit", "@triton.autotune([], key=[])\n@triton.jit", 1)
    assert {form.split(":")[0] for form in forms_of(tuned, 4)} == {"other_kernel"}


def measured(ms):
    spread = {"p20_ms": ms, "p80_ms": ms, "count": 10}
    return Measurement(
        source="measured", time_ms=ms, gpu="H200", gpu_uuid="GPU-1", visit="v", **spread
    )


FLOOR = Floor(
    least_bytes=10**6,
    flops=0,
    bandwidth_gb_s=1.0,
    flops_rate_tflop_s=989.0,
    bandwidth_source="datasheet",
    gpu="H200 SXM",
)
RIGHT = Verdict(outcome=Outcome.CORRECT, checks=[Check(stage=Stage.SMOKE, name="a", passed=True)])
WRONG = Verdict(outcome=Outcome.WRONG, stage=Stage.TRUE_SHAPES, reason="half of it is missing")


class Bench(RemoteExecutor):
    """A GPU whose times and verdicts are known by setting beforehand."""

    def __init__(self, times, judged):
        super().__init__("H200")
        self.times, self.judged = times, judged
        self.shares = {"scale_kernel": 0.02, "other_kernel": 0.98}
        self.jobs = []

    def run(self, job):
        self.jobs.append(job)
        if isinstance(job, ProfileJob):
            launches = [
                Launch(name=name, triton=True, grid=(1, 1, 1), threads=128, share=share)
                for name, share in self.shares.items()
            ]
            return Profile(source="ncu", gpu="H200", launches=launches)
        if isinstance(job, SweepJob):
            names = [subject.name for subject in job.subjects]
            return Sweep(times_ms={n: self.times[n] for n in names if n in self.times})
        assert isinstance(job, JudgeJob)
        verdict, ms = self.judged[job.subject.name]
        return Judgement(verdict=verdict, measurement=measured(ms) if ms else None)


def candidate(trace, name, source, ms, parent=None):
    path = trace.folder / f"{name}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    return Candidate(
        name=name,
        parent=parent,
        round=1 if parent else 0,
        worker=0 if parent else None,
        direction=Direction(finding="latency_not_hidden") if parent else None,
        description="x is added twice",
        author="some-model",
        kernel_file=trace.relative(path),
        fingerprint=source_fingerprint(source),
        verdict=RIGHT,
        measurement=measured(ms),
    )


@pytest.fixture
def world(tmp_path: Path):
    """A worker whose parent took 2 ms, and a way to make its tuner on a bench."""
    trace = Trace(tmp_path)
    first = candidate(trace, "r0-s0", NAMED, 2.0)
    visit = trace.visit("v")
    visit.parent.mkdir(parents=True)
    visit.write_text(measured(2.0).model_dump_json())

    def tuner(bench, floor_ms=None, **settings):
        shared = Shared(
            trace=trace,
            card=None,
            settings=Settings(**settings),
            executor=bench,
            proposer=None,
            floor=floor_ms and FLOOR.with_values(bandwidth_gb_s=1 / floor_ms),
            observer=make_display(json=True),
            stop=StopToken(),
        )
        view = RoundView(
            number=1,
            candidates={"r0-s0": first},
            times={"r0-s0": 1.0},
            memory=Memory(),
            seen={},
        )
        direction = Direction(finding="latency_not_hidden")
        assignment = Assignment(worker=0, parent="r0-s0", direction=direction)
        return Tuner(Worker(shared, view, assignment))

    return trace, first, tuner


TIMES = {
    "as it is": [1.0, 1.0],
    "num_warps 8": [0.8, 0.81],
    "num_warps 2": [0.9, 0.9],
    "BLOCK 2048": [1.3],
    "BLOCK 512": [0.7],  # it left early: another was timed again instead
}


def test_the_fastest_form_is_judged_and_has_its_lineage(world):
    trace, first, tuner = world
    won = candidate(trace, "r1-w0-v0", DOUBLED, 1.0, "r0-s0")
    bench = Bench(TIMES, {"r1-w0-v0-t1": (RIGHT, 0.8)})
    (form,) = tuner(bench, floor_ms=0.9, tune=6).run([won])
    assert (form.name, form.tuned_from, form.parent) == ("r1-w0-v0-t1", "r1-w0-v0", "r0-s0")
    assert (form.author, form.direction) == (won.author, won.direction)
    assert "num_warps 8" in form.description
    assert "num_warps=8" in (trace.folder / form.kernel_file).read_text()
    sweep, _ = bench.jobs
    assert len(sweep.subjects) == 7 and sweep.subjects[0].source == DOUBLED
    record = RoundRecord(
        round=1,
        candidates=[won, form],
        beam=["r0-s0"],
        running_best="r0-s0",
        tunings=[read_record(trace.worker(1, 0) / FILE, Tuning)],
    )
    totals = tuning_totals([record])
    assert (totals.sweeps, totals.configurations, totals.judged, totals.gains) == (1, 4, 1, 1)
    assert totals.best_gain == totals.mean_gain == 1.25
    # What is on disk is not measured again.
    idle = Bench({}, {})
    assert tuner(idle, tune=6).run([won]) == [form]
    assert idle.jobs == []


def test_where_the_fastest_is_wrong_the_next_is_judged_and_no_third(world):
    trace, first, tuner = world
    won = candidate(trace, "r1-w0-v0", DOUBLED, 1.0, "r0-s0")
    bench = Bench(
        TIMES | {"BLOCK 2048, num_warps 8": [0.95, 0.95]},
        {"r1-w0-v0-t1": (WRONG, None), "r1-w0-v0-t2": (RIGHT, 0.9)},
    )
    forms = tuner(bench, tune=6).run([won])
    assert [form.verdict.correct for form in forms] == [False, True]
    assert [job.subject.name for job in bench.jobs[1:]] == ["r1-w0-v0-t1", "r1-w0-v0-t2"]


@pytest.mark.parametrize(
    ("source", "ms", "settings"),
    [
        (DOUBLED, 1.0, {"floor_ms": 0.96}),  # within 5% of the floor
        (DOUBLED, 2.1, {}),  # slower than its parent
        (NAMED.replace("1024", "512"), 1.0, {}),  # faster by a constant
        (DOUBLED, 1.0, {"tune": 0}),
    ],
)
def test_nothing_else_is_swept(world, source, ms, settings):
    trace, first, tuner = world
    bench = Bench(TIMES, {})
    assert tuner(bench, **settings).run([candidate(trace, "r1-w0-v0", source, ms, "r0-s0")]) == []
    assert bench.jobs == []


def test_a_stop_leaves_no_half_a_sweep(world):
    trace, first, tuner = world
    won = candidate(trace, "r1-w0-v0", DOUBLED, 1.0, "r0-s0")
    bench = Bench(TIMES, {})
    stopping = tuner(bench, tune=6)
    run = bench.run

    def and_stop(job):
        stopping.shared.stop.set()
        return run(job)

    bench.run = and_stop
    with pytest.raises(Stopped):
        stopping.run([won])
    assert not (trace.worker(1, 0) / FILE).exists()


def test_of_several_kernels_those_that_take_next_to_no_time_are_not_swept(world):
    trace, first, tuner = world
    bench = Bench({}, {})
    won = candidate(trace, "r1-w0-v0", BOTH, 1.0, "r0-s0")
    won = won.with_values(verdict=RIGHT.with_values(launched=["scale_kernel", "other_kernel"]))
    assert tuner(bench, tune=6).run([won]) == []
    profiled, sweep = bench.jobs
    assert profiled.subject.source == BOTH
    changed = {subject.name.split(":")[0] for subject in sweep.subjects[1:]}
    assert changed == {"other_kernel"}
