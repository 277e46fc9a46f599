"""Why a number may be believed: what the floor, the cards and the checks are."""

from beamsearch.problem.input_values import DISTRIBUTIONS, NOT_A_NUMBER
from beamsearch.records.job import KernelTime
from beamsearch.records.packed import opened_run
from beamsearch.records.round import RoundRecord
from beamsearch.records.trace import read_record, write_record
from beamsearch.report import belief
from beamsearch.report.page import write_report
from beamsearch.report.run_data import RunData
from tests.report.made import PLAYBOOK, WITH_MODEL, confirmed, copied, modelled

ONE, OTHER = "GPU-175924f2-1ea3", "GPU-ebbfffc8-7ea0"


def changed(folder, **fields) -> RunData:
    """A recorded run whose record says something else."""
    trace = copied(PLAYBOOK, folder)
    write_record(trace.run_file, trace.run_record().with_values(**fields))
    return RunData(trace)


def test_the_floor_names_its_rate_and_its_card(tmp_path):
    run = RunData(opened_run(WITH_MODEL))
    told = belief.floor(run)
    assert "least bytes, 2.292 GB, at 4417 GB/s" in told and "GFLOP" not in told
    first = run.candidates["r0-s0"].measurement.gpu_uuid
    assert f"one card of this model ({first[4:12]})" in told, "an old run's, of one lane"
    assert "within 2% is at the floor" in told
    known = changed(tmp_path / "known", floor=run.record.floor.with_values(gpu_uuid=OTHER))
    assert "(ebbfffc8)" in belief.floor(known)
    paper = run.record.floor.with_values(bandwidth_source="datasheet", flops=10**10)
    told = belief.floor(changed(tmp_path / "paper", floor=paper))
    assert "10.0 GFLOP" in told and "the datasheet's" in told and "card" not in told


def test_the_page_never_calls_the_floor_the_least_there_can_be(tmp_path):
    page = tmp_path / "page.html"
    write_report(RunData(opened_run(WITH_MODEL)), page)
    text = page.read_text()
    assert "least there can be" not in text and "the time of the floor" in text
    assert "without the start and the end of a call" in text
    assert "as many calls as fit into a fixed time a turn" in text


def test_the_machine_is_told_with_its_cards(tmp_path):
    run = RunData(opened_run(WITH_MODEL))
    assert belief.machine(run) == "NVIDIA H200", "an old record does not say"
    where = run.record.environment.with_values(gpus=[ONE, OTHER])
    told = belief.machine(changed(tmp_path / "two", environment=where))
    assert told == "NVIDIA H200, 2 cards of this model worked on the run (175924f2, ebbfffc8)"
    assert "no GPU, compiled for" in belief.machine(RunData(modelled(tmp_path / "none")))


def test_a_multiple_of_the_floor_says_whose_time_it_is_of(tmp_path):
    final = RunData(opened_run(PLAYBOOK)).record
    multiple = final.confirmation.winner.time_ms / final.floor.time_ms
    run = changed(tmp_path / "run", stop_reason="within 9% of the floor (1.07 times)")
    told = f"(1.07 times), by its round's time; {multiple:.2f} times by the final one"
    assert belief.state(run).endswith(told)
    assert belief.state(RunData(opened_run(WITH_MODEL))) == "finished: all 5 rounds done"
    other = final.confirmation.winner.with_values(visit="another", gpu_uuid=OTHER)
    confirmation = final.confirmation.with_values(winner=other)
    told = " ".join(belief.belief(changed(tmp_path / "again", confirmation=confirmation)))
    assert "ebbfffc8 now)" in told and " times the floor then, " in told


def test_the_checks_of_both_looks_are_told():
    run = RunData(opened_run(WITH_MODEL))
    last, first = len(run.examination.checks), len(run.winner.verdict.checks)
    assert last > first
    told = (
        f"{first} of {first} checks passed in its round, {last} of {last} in the final examination"
    )
    assert belief.checks(run) == f"{told}, which makes them again and others"
    assert belief.checks(RunData(opened_run(PLAYBOOK))) == "9 of 9 checks passed"


def test_none_is_said_where_nothing_ties_or_is_left_unchecked():
    run = RunData(opened_run(WITH_MODEL))
    assert not run.examination.not_checked
    assert belief.verified(run)[-1] == "no check of this judge was left out"
    assert any("are as fast as the winner: r3-w0-v1, " in text for text in belief.belief(run))
    run.times = {
        name: time * (1 if name == run.winner.name else 2) for name, time in run.times.items()
    }
    told = "No other kernel is within the noise of 1% of the winner."
    assert not belief.tied(run) and told in belief.belief(run)


def test_every_set_of_inputs_that_a_check_names_is_explained(tmp_path):
    assert set(belief.INPUT_SETS) == {*DISTRIBUTIONS, NOT_A_NUMBER}
    run = RunData(opened_run(WITH_MODEL))
    told = dict(belief.input_sets(run))
    assert "ties" in told and "denormal" in told and NOT_A_NUMBER not in told
    write_report(run, tmp_path / "page.html")
    assert f"<li>ties: {told['ties']}</li>" in (tmp_path / "page.html").read_text()


def test_how_far_the_results_are_off_is_told_where_the_verdict_says():
    verdict = RunData(opened_run(WITH_MODEL)).examination
    (old,) = belief.errors(verdict, measured=True)
    assert "was not recorded: the judge allows 1% of the output's standard deviation" in old
    (told,) = belief.errors(verdict.with_values(rms_error=0.0016), measured=True)
    assert "its errors are rms 0.16% of the output's standard deviation" in told
    assert "1% of the output's standard deviation in half types" in told


def test_checks_that_decide_nothing_are_counted_apart():
    verdict = RunData(opened_run(WITH_MODEL)).examination
    only_told = verdict.checks[0].with_values(passed=False, reported=True)
    count = sum(check.passed for check in verdict.checks)
    of = sum(check.passed or not check.reported for check in verdict.checks)
    more = verdict.with_values(checks=[*verdict.checks, only_told])
    told = len(more.checks) - of
    words = f"{count} of {of} checks passed ({told} more are only told of, and decide nothing)"
    assert belief.passed(more) == words


def test_what_the_number_is_compared_with_is_told(tmp_path):
    told = "\n".join(belief.belief(RunData(opened_run(WITH_MODEL))))
    assert "The baselines are the reference in bfloat16" in told and "first draft" not in told
    trace = copied(WITH_MODEL, tmp_path / "drafted")
    path = trace.round(0) / "round.json"
    record = read_record(path, RoundRecord)
    drafts = [c.with_values(author="some-model") for c in record.candidates]
    write_record(path, record.with_values(candidates=drafts))
    told = "\n".join(belief.belief(RunData(trace)))
    assert "a first draft by some-model: a speedup over it says little" in told


def test_a_check_that_failed_is_not_said_to_decide_nothing():
    run = RunData(opened_run(WITH_MODEL))
    failed, told = (
        run.examination.checks[0].with_values(name=name, passed=False, reported=reported)
        for name, reported in (("one", False), ("other", True))
    )
    looked = run.examination.model_copy(update={"checks": [failed, told]})
    run.examination = looked
    line, *_ = belief.verified(run)
    assert "one (FAILED: " in line and "other (told, decides nothing: " in line


def test_a_kernel_that_does_more_than_the_floors_rate_is_named():
    run = RunData(opened_run(WITH_MODEL))
    dtype, profile = run.record.problem_dtype, run.profile(run.winner.name)
    work = [n.with_values(metrics={**n.metrics, "matrix_flops": 1e12}) for n in profile.launches]
    shortest = min(work, key=lambda launch: launch.duration_us)
    rate = 1e6 / shortest.duration_us

    def told(floor_rate, products):
        floor = run.record.floor.with_values(
            flops=10**12, flops_rate_tflop_s=floor_rate, products=products
        )
        changed_run = RunData(opened_run(WITH_MODEL))
        changed_run.record = changed_run.record.with_values(floor=floor)
        changed_run._profiles[run.winner.name] = profile.with_values(launches=work)
        return belief.floor(changed_run)

    text = told(rate / 2, dtype)
    where = f"{shortest.name} of {run.winner.name}"
    assert f"the matrix units did {rate:.0f} TFLOP/s in {where}" in text
    assert "a large torch.mm" in text
    assert "the matrix units did" not in told(rate * 2, dtype)
    assert "the matrix units did" not in told(rate / 2, "another")


def test_which_of_bytes_and_arithmetic_takes_longer_is_told(tmp_path):
    floor = RunData(opened_run(WITH_MODEL)).record.floor
    for number, (flops, longer) in enumerate(
        [(10**15, "the arithmetic, which takes longer"), (10, "the bytes, which take longer")]
    ):
        more = floor.with_values(flops=flops, flops_rate_tflop_s=500.0)
        assert longer in belief.floor(changed(tmp_path / str(number), floor=more))


def test_how_far_two_timings_of_one_kernel_are_apart_is_told(tmp_path):
    run = RunData(confirmed(tmp_path / "run"))
    assert run.in_turns
    told, *near = belief.timed_twice(run)
    apart = {}
    for name, turns in run.in_turns.items():
        alone = run.candidates[name].measurement
        before = run.candidates[turns.beside]
        in_turns = turns.time.time_ms / turns.its_time.time_ms * run.times[before.name]
        judged = alone.time_ms / run.trace.input_time_ms(alone.visit)
        apart[name] = max(judged / in_turns, in_turns / judged) - 1
    name = max(apart, key=apart.get)
    assert f"({name})" in told and f"{apart[name]:.1%}" in told
    mark = run.times[run.winner.name]
    for other, time in run.times.items():
        is_near = run.noise < time / mark - 1 <= apart[name] and other not in run.in_turns
        assert any(f" {other}" in text for text in near) == is_near
    assert near
    run.in_turns = {}
    assert belief.timed_twice(run) == []


def test_what_baselines_run_and_how_wide_the_calls_are_is_told():
    run = RunData(opened_run(WITH_MODEL))
    confirmed = run.record.confirmation
    assert not any("longer than the median" in text for text in belief.belief(run))
    (told,) = belief.baseline_kernels(run)
    slower = confirmed.baselines.compile.time_ms / confirmed.baselines.eager.time_ms
    assert slower > 1.1 and f"{slower:.2f}x slower than eager" in told
    quick = confirmed.baselines.with_values(compile=confirmed.baselines.eager)
    run.record = run.record.with_values(confirmation=confirmed.with_values(baselines=quick))
    assert belief.baseline_kernels(run) == []
    eager = confirmed.baselines.eager
    slow = eager.with_values(time_ms=1.5 * eager.time_ms)
    kernels = [
        KernelTime(name="a_kernel", count=2, ms=0.5),
        KernelTime(name="x" * 200 + " y", count=1, ms=0.25),
    ]
    seen = {"eager": kernels}
    winner = confirmed.winner.with_values(p80_ms=1.08 * confirmed.winner.time_ms)
    turns = {"winner": [1.0, 1.1], "input": [2.0, 2.2], "eager": [1.5]}
    for told_of, words in ((seen, "eager runs: a_kernel (2 times) 0.5 ms; "), ({}, "1.50x slower")):
        baselines = confirmed.baselines.with_values(compile=slow, kernels=told_of)
        again = confirmed.with_values(winner=winner, turns=turns, baselines=baselines)
        run.record = run.record.with_values(confirmation=again)
        (told,) = belief.baseline_kernels(run)
        assert words in told and len(told) < 250
    told = " ".join(belief.belief(run))
    assert "A fifth of these calls took 8% longer than the median" in told
    assert "Times over the winner's, turn by turn, 2 turns each: input 2.000x" in told


def test_the_rule_of_tf32_is_told_where_it_matters(tmp_path):
    assert not any("TF32" in text for text in belief.belief(RunData(opened_run(WITH_MODEL))))
    trace = copied(WITH_MODEL, tmp_path / "run")
    for precision, words in (("reference", "convolutions in TF32"), ("strict", "TF32 is off")):
        record = trace.run_record()
        settings = record.settings.model_copy(update={"precision": precision, "dtype": "float32"})
        write_record(trace.run_file, record.with_values(settings=settings))
        told = " ".join(belief.belief(RunData(trace)))
        assert words in told and "computed without TF32" in told
