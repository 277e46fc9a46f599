"""The judge on a GPU. `-s` prints what things took."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path

import pytest

from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import find_machine
from beamsearch.judge import on_gpu
from beamsearch.judge.sandbox.isolation import USER
from beamsearch.judge.verification import decide
from beamsearch.judge.verification.inputs import InputSet, InputSets
from beamsearch.problem.input_values import Distribution
from beamsearch.problem.problem import Problem, find_problem
from beamsearch.records.job import CompareJob, JudgeJob, Judgement, ProfileJob, Subject
from beamsearch.records.verdict import Outcome, Stage
from beamsearch.search.pairs import paired
from tests.judge.conftest import SCALE_KERNEL
from tests.judge.test_verdicts import HOST, WRONG, variant

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(170)]

FOREVER = """
@triton.jit
def forever_kernel(flag_ptr):
    while tl.load(flag_ptr, volatile=True) >= 0:
        tl.atomic_add(flag_ptr, 0.0)

def kernel_function(x, bias):
    forever_kernel[(1,)](torch.zeros(1, dtype=torch.float32, device=x.device))
    return torch.empty_like(x)
"""


def gpu_executor(problem: Problem, scratch: Path) -> LocalExecutor:

    return LocalExecutor(problem, machine=find_machine(0), scratch=scratch, seed=3)


def run_judge(executor: LocalExecutor, source: str, label: str) -> Judgement:
    began = time.monotonic()
    judgement = executor.run(JudgeJob(subject=Subject(name=label, source=source)))
    seconds = time.monotonic() - began
    verdict = judgement.verdict
    print(f"\n{label}: {verdict.outcome} {judgement.measurement or ''} in {seconds:.2f} s")
    if not verdict.correct:
        print(f"    {verdict.stage}: {verdict.reason}")
    for check in verdict.checks:
        print(f"    {check.stage} {check.name}: {'ok' if check.passed else 'NO'} {check.message}")
    for line in verdict.not_checked:
        print(f"    not checked: {line}")
    if verdict.output:
        print("    printed:", verdict.output[-1500:].replace("\n", "\n        "))
    return judgement


@pytest.fixture(scope="module")
def executor(
    scale_problem: Problem, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalExecutor]:
    made = gpu_executor(scale_problem, tmp_path_factory.mktemp("gpu"))
    yield made
    made.close()


@pytest.fixture
def judge(executor: LocalExecutor, request: pytest.FixtureRequest) -> Callable[[str], Judgement]:
    return lambda source: run_judge(executor, source, request.node.name)


@pytest.mark.parametrize("name", ["04", "36", "43", "77", "82"])
def test_input_kernels_are_verified_and_timed(name: str, tmp_path: Path) -> None:
    problem = find_problem(name)
    assert problem.input_kernel is not None
    source = problem.input_kernel.read_text()
    executor = gpu_executor(problem, tmp_path)
    try:
        first = run_judge(executor, source, f"{name} input kernel, cold")
        began = time.monotonic()
        again = run_judge(executor, source + "\n# again\n", f"{name} input kernel, warm")
        seconds = time.monotonic() - began
        assert executor._measuring is not None
        print("    sets dropped:", executor._measuring._true.dropped)
    finally:
        executor.close()
    assert first.verdict.correct, first.verdict.reason
    assert again.verdict.correct, again.verdict.reason
    assert first.measurement is not None
    assert again.measurement is not None
    assert first.measurement.source == "measured"
    assert again.measurement.time_ms == pytest.approx(first.measurement.time_ms, rel=0.03)
    assert any(check.stage is Stage.TRUE_SHAPES for check in first.verdict.checks)
    assert seconds < 8


def test_its_input_sets_are_made_while_the_first_kernel_compiles(
    scale_problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[InputSets] = []
    build = InputSets._build

    def counted(sets: InputSets, label: str, distribution: Distribution) -> InputSet:
        built.append(sets)
        return build(sets, label, distribution)

    monkeypatch.setattr(InputSets, "_build", counted)
    executor = gpu_executor(scale_problem, tmp_path)
    assert executor._measuring is not None
    true = executor._measuring._true
    kernel = Subject(name="kernel", source=SCALE_KERNEL)
    try:
        executor.prepare([kernel])
        ended = time.monotonic() + 30
        while len(true._sets) < on_gpu.TRUE_SETS and time.monotonic() < ended:
            time.sleep(0.01)
        ahead = built.count(true)
        executor.prepare([Subject(name="another", source=SCALE_KERNEL + "\n# another\n")])
        assert executor.run(JudgeJob(subject=kernel)).verdict.correct
        assert on_gpu.TRUE_SETS <= ahead == built.count(true)
    finally:
        executor.close()


def test_an_executor_that_is_closed_at_once_makes_no_input_sets(
    scale_problem: Problem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built: list[str] = []
    monkeypatch.setattr(InputSets, "_build", lambda _, label, __: built.append(label))
    executor = gpu_executor(scale_problem, tmp_path)
    assert executor._measuring is not None
    with executor._measuring._lane.held():
        executor.prepare([Subject(name="kernel", source=SCALE_KERNEL)])
        executor._measuring._closed.set()
    executor.close()
    time.sleep(1)
    assert not built


@pytest.mark.parametrize("name", ["value", "one in a hundred", "in place", "nan"])
def test_wrong_kernels_are_wrong(judge: Callable[[str], Judgement], name: str) -> None:
    verdict = judge(WRONG[name][0]).verdict
    assert verdict.outcome is Outcome.WRONG
    assert WRONG[name][1].replace("(1.", "(") in verdict.reason


def test_wrong_at_the_true_shapes_only(judge: Callable[[str], Judgement]) -> None:
    last_row = variant("mask = index < total", "mask = index < tl.minimum(total, 1023 * 4096)")
    verdict = judge(last_row).verdict
    assert (verdict.outcome, verdict.stage) == (Outcome.WRONG, Stage.TRUE_SHAPES)
    assert "4096 of 4194304" in verdict.reason


def test_specialised_kernel_is_correct_and_told_to_be(judge: Callable[[str], Judgement]) -> None:
    source = variant(HOST, HOST + "    if x.shape[0] != 1024:\n        raise ValueError('odd')\n")
    verdict = judge(source).verdict
    assert verdict.correct, verdict.reason
    assert [c.message for c in verdict.checks if not c.passed and "specialised" in c.message]


HEAD = SCALE_KERNEL.split("@triton.jit")[0]
OUTSIDE = variant("tl.store(y_ptr + index,", "tl.store(y_ptr + index.to(tl.int64) + (1 << 40),")
HOSTILE = {
    "segfault": (
        "import ctypes\n"
        + variant(HOST, HOST + "    if x.device.type == 'cuda':\n        ctypes.string_at(0)\n"),
        Outcome.CRASHED,
        "SIGSEGV",
    ),
    "corrupted context": (OUTSIDE, Outcome.CRASHED, "outside its tensors"),
    "memory hog": (
        variant(
            HOST,
            HOST + "    if x.device.type == 'cuda':\n"
            "        hog = torch.zeros(1 << 40, dtype=torch.uint8, device=x.device)\n",
        ),
        Outcome.CRASHED,
        "OutOfMemoryError",
    ),
    "loops": (HEAD + FOREVER, Outcome.TIMEOUT, "within 5 s"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_lane_is_healthy_after(
    judge: Callable[[str], Judgement], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (on_gpu, decide):  # at its own shapes and at others
        monkeypatch.setattr(module, "GPU_CALL_S", 5.0)
        monkeypatch.setattr(module, "FIRST_CALL_S", 5.0)
    source, outcome, reason = HOSTILE[name]
    began = time.monotonic()
    verdict = judge(source).verdict
    seconds = time.monotonic() - began
    assert verdict.outcome is outcome
    assert reason in verdict.reason
    assert seconds < 25
    assert judge(SCALE_KERNEL).verdict.correct


HELD = "    key = x.data_ptr()\n    if key in kept:\n        return kept[key]\n"
PROBED = "    key = (x.data_ptr(), x[0, :4].sum().item())\n" + HELD.split("\n", 1)[1]
KEEPS = variant("    return y\n", "    kept[key] = y\n    return y\n") + "\nkept = {}\n"
LAUNCH = (
    "scale_kernel[(triton.cdiv(x.numel(), 1024),)](x, bias, y, x.numel(), x.shape[1], BLOCK=1024)"
)
SIDE = "    with torch.cuda.stream(torch.cuda.Stream()):\n"
CHEATS = {
    "keeps by value": (variant(HOST, PROBED + HOST, KEEPS), Stage.COMPILE, "on the host"),
    "another stream": (
        variant("    " + LAUNCH, SIDE + "        " + LAUNCH),
        Stage.COMPILE,
        "leaves the current stream",
    ),
    "a graph": (
        variant("    " + LAUNCH, "    graph = torch.cuda.CUDAGraph()\n    " + LAUNCH),
        Stage.COMPILE,
        "a CUDA graph of its own",
    ),
    "for show": (
        variant("    return y\n", "    return torch.add(x * 2, bias)\n"),
        Stage.TIMING,
        "a third is the most",
    ),
}


@pytest.mark.parametrize("name", CHEATS)
def test_timing_is_not_fooled(judge: Callable[[str], Judgement], name: str) -> None:
    source, stage, reason = CHEATS[name]
    verdict = judge(source).verdict
    assert (verdict.outcome, verdict.stage) == (Outcome.DISALLOWED, stage), verdict.reason
    assert reason in verdict.reason


PATCHES = """
torch.cuda.Event.elapsed_time = lambda self, other: 1e-3
torch.cuda.Event.record = lambda self, *stream: None
torch.cuda.synchronize = lambda *device: None
torch.Tensor.zero_ = torch.Tensor.copy_ = lambda self, *other, **more: self
"""
HONEST_AFTER_ALL = {
    "keeps by pointer": variant(HOST, HELD + HOST, KEEPS),
    "patches clocks": SCALE_KERNEL + PATCHES,
    "waits in its Python": "import time\n" + variant(HOST, "    time.sleep(0.01)\n" + HOST),
}


@pytest.mark.parametrize("name", HONEST_AFTER_ALL)
def test_what_python_does_beside_its_launches_changes_no_time(
    judge: Callable[[str], Judgement], name: str
) -> None:
    honest, other = judge(SCALE_KERNEL), judge(HONEST_AFTER_ALL[name])
    assert honest.measurement is not None
    assert other.measurement is not None, other.verdict.reason
    assert other.measurement.time_ms == pytest.approx(honest.measurement.time_ms, rel=0.1)
    assert other.measurement.graph


def test_candidates_stand_behind_walls_and_are_not_root(
    executor: LocalExecutor, judge: Callable[[str], Judgement]
) -> None:
    print("\n   ", executor.missing_isolation())
    peek = variant(HOST, HOST + "    import os\n    print('user', os.getuid(), flush=True)\n")
    judgement = judge(peek)
    assert judgement.verdict.correct, judgement.verdict.reason
    if USER not in executor.missing_isolation():
        assert "user 0" not in judgement.verdict.output
    assert any(check.name == "clocks" for check in judgement.verdict.checks)
    assert judgement.measurement is not None
    assert judgement.measurement.clock_start_mhz


def test_ten_timings_within_a_percent_and_a_candidate_in_five_seconds(tmp_path: Path) -> None:
    problem = find_problem("43")
    assert problem.input_kernel is not None
    source = problem.input_kernel.read_text()
    executor = gpu_executor(problem, tmp_path)
    medians, seconds = [], []
    try:
        for number in range(10):
            began = time.monotonic()
            judgement = run_judge(executor, f"{source}\n# {number}\n", f"timing {number}")
            seconds.append(time.monotonic() - began)
            assert judgement.measurement is not None, judgement.verdict.reason
            medians.append(judgement.measurement.time_ms)
        twins = [Subject(name=name, source=source) for name in ("one", "other")]
        turns = executor.run(CompareJob(subjects=twins)).turns
    finally:
        executor.close()
    print(f"    spread {max(medians) / min(medians) - 1:.2%}, slowest {max(seconds[1:]):.2f} s")
    assert max(medians) / min(medians) < 1.01
    assert max(seconds[1:]) < 5  # the first one finds a cold lane
    assert paired(turns["one"], turns["other"]).verdict == "tie"


def test_fifteen_twins_are_ties_in_95_of_100_pairs(tmp_path: Path) -> None:
    problem = find_problem("43")
    assert problem.input_kernel is not None
    source = problem.input_kernel.read_text()
    executor = gpu_executor(problem, tmp_path)
    try:
        began = time.monotonic()
        twins = [Subject(name=str(number), source=source) for number in range(15)]
        turns = executor.run(CompareJob(subjects=twins)).turns
    finally:
        executor.close()
    said = Counter(paired(turns[a], turns[b]).verdict for a, b in combinations(turns, 2))
    print(f"\n    {dict(said)} in {time.monotonic() - began:.1f} s")
    assert said.total() == 105
    assert said["tie"] >= 100


TUNED = variant(
    "@triton.jit",
    "@triton.autotune([triton.Config({'BLOCK': n}) for n in (64, 1024)], key=['total'])\n"
    "@triton.jit",
    variant(
        LAUNCH,
        "scale_kernel[lambda meta: (triton.cdiv(x.numel(), meta['BLOCK']),)]"
        "(x, bias, y, x.numel(), x.shape[1])",
    ),
)


def test_an_autotuned_kernel_is_judged_and_profiled_in_its_fastest_configuration(
    executor: LocalExecutor, judge: Callable[[str], Judgement]
) -> None:
    alone, tuned = judge(SCALE_KERNEL), judge(TUNED)
    assert alone.measurement is not None
    assert tuned.measurement is not None, tuned.verdict.reason
    assert tuned.measurement.time_ms == pytest.approx(alone.measurement.time_ms, rel=0.1)
    profile = executor.run(ProfileJob(subject=Subject(name="tuned", source=TUNED)))
    (launch,) = [launch for launch in profile.launches if launch.triton]
    assert "BLOCK: 1024" in str(launch.config)
    fast, slow = profile.configurations
    assert "BLOCK: 1024" in fast.config and "BLOCK: 64" in slow.config
    assert fast.time_ms and slow.time_ms and fast.time_ms < slow.time_ms


def test_eager_compile_and_kernel_side_by_side(tmp_path: Path) -> None:
    problem = find_problem("43")
    assert problem.input_kernel is not None
    source = problem.input_kernel.read_text()
    executor = gpu_executor(problem, tmp_path)
    subjects = [
        Subject(name="eager", kind="eager"),
        Subject(name="compile", kind="compile"),
        Subject(name="max-autotune", kind="max_autotune"),
        Subject(name="input", source=source),
        Subject(name="twin", source=source),
        Subject(name="wrong", source=source.replace("best.to(", "(best * 1.5).to(")),
    ]
    try:
        began = time.monotonic()
        comparison = executor.run(CompareJob(subjects=subjects))
        print(f"\ncompared in {time.monotonic() - began:.1f} s")
        for name, time_ in comparison.measurements.items():
            print(f"    {name}: {time_} ({time_.p20_ms:.4f} to {time_.p80_ms:.4f}, {time_.count})")
        print("    failed:", comparison.failed)
        began = time.monotonic()
        profile = executor.run(ProfileJob(subject=subjects[3]))
        print(f"profiled in {time.monotonic() - began:.1f} s: {profile.source}, {profile.note}")
        for launch in profile.launches:
            print(f"    {launch.name} triton={launch.triton} {launch.duration_us} us")
    finally:
        executor.close()
    assert set(comparison.measurements) == {"eager", "compile", "max-autotune", "input", "twin"}
    assert "elements wrong" in comparison.failed["wrong"]
    one, other = (comparison.measurements[name].time_ms for name in ("input", "twin"))
    assert one == pytest.approx(other, rel=0.02)
    assert len({m.visit for m in comparison.measurements.values()}) == 1
