"""Recorded runs, and larger or more hostile ones made from them."""

import shutil
from pathlib import Path

from beamsearch.records.candidate import Candidate
from beamsearch.records.job import Comparison
from beamsearch.records.measurement import Measurement
from beamsearch.records.packed import opened_run
from beamsearch.records.ratios import comparable_times
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import Trace, read_record, write_record
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.search.pairs import paired
from tests import ROOT

CLAUDE = ROOT / "artifacts" / "claude"
WITH_MODEL = CLAUDE / "43_Max_Pooling_3D"
WITH_FAILURE = CLAUDE / "82_conv_depthwise_2D_square_input_square_kernel"
PLAYBOOK = ROOT / "artifacts" / "playbook" / "36_RMSNorm"
HOSTILE = (
    "</script><script>window.hit = 1</script><img src=x onerror='window.hit = 2'>"
    '"><svg onload=window.hit=3> {{ 7 * 7 }} \x1b[31mred\x1b[2J\x07 \u202eorder\u202c \u200b\ufeff '
    "\u2028 \U0001f4a9 a\u0301 -->]]>&lt;&#x3c;"
)


def copied(run: Path, folder: Path) -> Trace:
    """A recorded run's whole trace, to be changed."""
    shutil.copytree(opened_run(run).folder, folder)
    return Trace(folder)


def hostile(folder: Path) -> Trace:
    """A run in which kernel, description, verdict, prompts and replies hold HTML, escapes and
    odd Unicode."""
    trace = copied(WITH_MODEL, folder)
    for record in trace.completed_rounds():
        candidates = [_hostile(trace, c) for c in record.candidates]
        changed = record.with_values(candidates=candidates)
        write_record(trace.round(record.round) / "round.json", changed)
    for path in trace.rounds_folder.rglob("*.txt"):
        path.write_text(path.read_text() + HOSTILE)
    run = trace.run_record()
    write_record(trace.run_file, run.with_values(notes=[HOSTILE], who_thinks=HOSTILE))
    return trace


def _hostile(trace: Trace, candidate: Candidate) -> Candidate:
    path = trace.folder / (candidate.kernel_file or "")
    path.write_text(f"{path.read_text()}\n# {HOSTILE}\nx = {HOSTILE!r}\n")
    changed: dict[str, object] = {"description": HOSTILE}
    if candidate.name == "r2-w1-v1":
        check = Check(stage=Stage.SMOKE, name=HOSTILE, passed=False, message=HOSTILE)
        verdict = Verdict(
            outcome=Outcome.WRONG,
            stage=Stage.SMOKE,
            reason=HOSTILE,
            checks=[check],
            output=HOSTILE,
        )
        changed |= {"verdict": verdict, "measurement": None}
    return candidate.with_values(**changed)


def confirmed(folder: Path) -> Trace:
    """A run whose rounds kept what came of timing their wins again, as rounds do now."""
    trace = copied(WITH_MODEL, folder)
    times = comparable_times(trace, [c for r in trace.completed_rounds() for c in r.candidates])
    for record in trace.completed_rounds():
        path = trace.round(record.round) / "confirmation.json"
        if record.win and path.is_file():
            turns = read_record(path, Comparison).turns
            before = next(name for name in turns if name != record.best)
            times[record.best] = times[before] * paired(turns[record.best], turns[before]).median
            candidates = [
                c.with_values(confirmed_ratio=times[c.name]) if c.name == record.best else c
                for c in record.candidates
            ]
            changed = record.with_values(candidates=candidates)
            write_record(trace.round(record.round) / "round.json", changed)
    return trace


def multiplied(folder: Path, rounds: int, workers: int) -> Trace:
    """A run with as many rounds and workers, each a copy of one of a recorded run."""
    trace = copied(WITH_MODEL, folder)
    recorded = trace.completed_rounds()
    for number in range(1, rounds + 1):
        like = recorded[1 + (number - 1) % (len(recorded) - 1)]
        candidates = [
            _copy(trace, like, number, worker, worker % 4, candidate)
            for worker in range(workers)
            for candidate in like.candidates
            if candidate.worker == worker % 4
        ]
        best = candidates[0].name
        record = like.with_values(
            round=number,
            candidates=candidates,
            best=best,
            best_worker=0,
            beam=[best],
            running_best=best if number == rounds else "r0-s0",
            win=number == rounds,
            seconds=60.0 * number,
            tunings=[],
        )
        write_record(trace.round(number) / "round.json", record)
    last = trace.round_record(rounds)
    run = trace.run_record()
    write_record(trace.run_file, run.with_values(best=last.running_best, confirmation=None))
    return trace


def _copy(
    trace: Trace, like: RoundRecord, number: int, worker: int, its: int, candidate: Candidate
) -> Candidate:
    suffix = candidate.name.partition("-v")[2]
    name = f"r{number}-w{worker}-v{suffix}"
    target, source = trace.worker(number, worker), trace.worker(like.round, its)
    target.mkdir(parents=True, exist_ok=True)
    for path in source.glob("*.txt"):
        if not (target / path.name).exists():
            shutil.copyfile(path, target / path.name)
    kernel = target / f"{name}.py"
    if not kernel.exists():
        shutil.copyfile(trace.folder / (candidate.kernel_file or ""), kernel)
    profile = trace.profile(candidate.name)
    if profile.is_file() and not trace.profile(name).exists():
        shutil.copyfile(profile, trace.profile(name))
    parent = "r0-s0" if number == 1 else f"r{number - 1}-w{worker}-v0"
    return candidate.with_values(
        name=name, round=number, worker=worker, parent=parent, kernel_file=trace.relative(kernel)
    )


def modelled(folder: Path) -> Trace:
    """A run whose times are a model's; what was said of the measured ones is gone."""
    trace = copied(PLAYBOOK, folder)
    for path in trace.rounds_folder.rglob("reflexion.txt"):
        path.unlink()

    def without_gpu(time: Measurement | None) -> Measurement | None:
        return time and Measurement(source="modelled", time_ms=time.time_ms, gpu="H200 SXM")

    for record in trace.completed_rounds():
        candidates = [
            c.with_values(measurement=without_gpu(c.measurement)) for c in record.candidates
        ]
        changed = record.with_values(candidates=candidates)
        write_record(trace.round(record.round) / "round.json", changed)
    first = read_record(trace.input_record, Candidate)
    first = first.with_values(measurement=without_gpu(first.measurement))
    write_record(trace.input_record, first)
    run = trace.run_record()
    rounds = [r.with_values(best_time=without_gpu(r.best_time)) for r in run.rounds]
    none = run.baselines.with_values(eager=None, compile=None, max_autotune=None, anchor=None)
    machine = run.environment.with_values(gpu=None, gpu_uuid=None)
    write_record(
        trace.run_file,
        run.with_values(rounds=rounds, confirmation=None, baselines=none, environment=machine),
    )
    return trace
