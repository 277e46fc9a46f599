"""What the judge says, without a GPU, of right, wrong and hostile kernels."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from beamsearch.errors import BeamsearchError, ProblemError, Stopped
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.judge.capture import ahead
from beamsearch.paths import data_folder
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem, find_problem
from beamsearch.records.job import (
    CompareJob,
    JudgeJob,
    Judgement,
    ProfileJob,
    Subject,
    SweepJob,
)
from beamsearch.records.verdict import Outcome, Stage
from tests.judge.conftest import SCALE_KERNEL, write_problem
from tests.processes import family

Judge = Callable[[str], Judgement]
HOST = "    y = torch.empty_like(x)\n"


def variant(before: str, after: str, source: str = SCALE_KERNEL) -> str:
    assert before in source
    return source.replace(before, after)


@pytest.mark.slow
def test_right_kernel_is_correct_with_a_modelled_time_and_says_what_was_not_checked(
    judge: Judge, executor: LocalExecutor
) -> None:
    first, second = judge(SCALE_KERNEL), judge(SCALE_KERNEL)
    assert first.verdict.correct
    assert first == second
    assert first.measurement is not None
    assert first.measurement.source == "modelled"
    assert {c.stage for c in first.verdict.checks} >= {Stage.LOAD, Stage.COMPILE, Stage.SMOKE}
    assert "no GPU" in first.verdict.not_checked[0]
    assert first.verdict.code_fingerprint and first.verdict.launched == ["scale_kernel"]
    began = time.monotonic()
    profile = executor.run(ProfileJob(subject=Subject(name="again", source=SCALE_KERNEL)))
    assert time.monotonic() - began < 0.1  # the judge's own compilation and trace
    assert profile.modelled_ms == first.measurement.time_ms


def test_arithmetic_in_bfloat16_is_right(judge: Judge) -> None:
    assert judge(SCALE_KERNEL.replace(".to(tl.float32)", "")).verdict.correct


WRONG = {
    "mask": (variant("mask = index < total", "mask = index < total - columns"), "never written"),
    "value": (variant("2 * x + bias", "2 * x"), "elements wrong"),
    "one in a hundred": (
        variant("(2 * x + bias)", "tl.where(index % 100 == 0, x, 2 * x + bias)"),
        "(1.",
    ),
    "shape": (variant("    return y\n", "    return y[:-1]\n"), "output has shape"),
    "dtype": (variant("    return y\n", "    return y.float()\n"), "float32 instead of bfloat16"),
    "in place": (variant(HOST, "    y = x\n"), "changed its inputs"),
    "alias": (variant("    return y\n", "    return x\n"), "memory of an input"),
    "writes a parameter": (variant(HOST, HOST + "    bias.add_(1)\n"), "changed its inputs"),
    "zeros": (variant("    return y\n", "    return torch.zeros_like(x)\n"), "elements wrong"),
    "constant": (variant("    return y\n", "    return torch.full_like(x, 1.5)\n"), "wrong"),
    "nan": (variant("    return y\n", "    y[0, 0] = float('nan')\n    return y\n"), "NaN"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_wrong_with_a_reason_to_act_on(judge: Judge, name: str) -> None:
    source, reason = WRONG[name]
    verdict = judge(source).verdict
    assert (verdict.outcome, verdict.stage) == (Outcome.WRONG, Stage.SMOKE), verdict.reason
    assert reason in verdict.reason
    assert "/" not in verdict.reason.replace("n/a", "")


BROKEN = {
    "syntax": ("def kernel_function(x:\n", Outcome.INVALID, Stage.POLICY, "does not parse"),
    "no entry": ("x = 1\n", Outcome.INVALID, Stage.POLICY, "kernel_function"),
    "import": ("import nowhere\n" + SCALE_KERNEL, Outcome.INVALID, Stage.LOAD, "nowhere"),
    "unbindable": (
        variant("def kernel_function(x, bias)", "def kernel_function(x, bias, gamma)"),
        Outcome.INVALID,
        Stage.LOAD,
        "`gamma`",
    ),
    "does not compile": (
        variant("y_ptr.dtype.element_ty", "tl.no_such_type"),
        Outcome.COMPILE_ERROR,
        Stage.COMPILE,
        "no_such_type",
    ),
    "raises": (
        variant(HOST, HOST + "    if x.numel() < 1 << 20:\n        raise ValueError('odd')\n"),
        Outcome.UNPROVEN,
        Stage.OTHER_SHAPES,
        "odd",
    ),
    "segfault": (
        "import ctypes, os\n"
        + variant(HOST, HOST + "    if 'TRITON_INTERPRET' in os.environ: ctypes.string_at(0)\n"),
        Outcome.CRASHED,
        Stage.SMOKE,
        "SIGSEGV",
    ),
    "exits": (
        "import os\n" + variant(HOST, HOST + "    os._exit(0)\n"),
        Outcome.CRASHED,
        Stage.COMPILE,
        "exit code 0",
    ),
    "returns nothing": (
        variant("    return y\n", "    return None\n"),
        Outcome.DISALLOWED,
        Stage.COMPILE,
        "returns a NoneType where a tensor on the GPU is expected",
    ),
    "memory hog": (
        variant(HOST, HOST + "    hog = [bytearray(1 << 28) for _ in range(64)]\n"),
        Outcome.CRASHED,
        Stage.COMPILE,
        "MemoryError",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_get_a_verdict_and_the_next_candidate_is_fine(
    judge: Judge, name: str
) -> None:
    source, outcome, stage, reason = BROKEN[name]
    verdict = judge(source).verdict
    assert (verdict.outcome, verdict.stage) == (outcome, stage), verdict.reason
    assert reason in verdict.reason
    if name in ("segfault", "exits", "memory hog"):
        assert judge(SCALE_KERNEL).verdict.correct


def test_what_the_interpreter_cannot_run_is_not_called_wrong(judge: Judge) -> None:
    assembly = variant(
        "(2 * x + bias)",
        "tl.inline_asm_elementwise('add.f32 $0, $1, $2;', '=f,f,f', [2 * x, bias], "
        "dtype=tl.float32, is_pure=True, pack=1)",
    )
    verdict = judge(assembly).verdict
    assert (verdict.outcome, verdict.stage) == (Outcome.UNPROVEN, Stage.OTHER_SHAPES)
    assert "could not be verified" in verdict.reason
    assert "interpreter cannot run it at line" in verdict.reason


@pytest.mark.slow
def test_judgements_do_not_depend_on_where_or_when(
    scale_problem: Problem, judge: Judge, tmp_path: Path
) -> None:
    elsewhere = LocalExecutor(scale_problem, machine=modelled(), scratch=tmp_path / "other", seed=7)
    prints = variant(HOST, HOST + "    print(x, object(), __file__)\n")
    try:
        for source in (prints, BROKEN["raises"][0], BROKEN["does not compile"][0]):
            found = elsewhere.run(JudgeJob(subject=Subject(name="candidate", source=source)))
            assert found == judge(source)
            assert found.verdict.output
    finally:
        elsewhere.close()


def test_what_a_crash_prints_begins_with_the_kernels_own_lines(judge: Judge) -> None:
    output = judge(BROKEN["raises"][0]).verdict.output
    assert 'kernel.py", line' in output
    assert "beamsearch/judge" not in output


def test_endless_kernel_ends_at_its_deadline_with_all_it_started(
    judge: Judge, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(ahead, "CAPTURE_S", 3.0)
    mark = f"loop of {tmp_path}"
    endless = variant(
        HOST,
        HOST
        + f"""
    import os, subprocess, sys
    loop = [sys.executable, '-c', 'while True: pass', {mark!r}]
    for own_session in (False, True):
        subprocess.Popen(loop, start_new_session=own_session)
    print('flood ' * 1000, flush=True)
    while True: pass
""",
    )
    began = time.monotonic()
    verdict = judge(endless).verdict
    assert verdict.outcome is Outcome.TIMEOUT
    assert "within 3 s" in verdict.reason
    assert time.monotonic() - began < 8
    assert verdict.output.endswith("flood")
    assert len(verdict.output) <= 4000
    assert not [path for path in Path("/proc").glob("[0-9]*/cmdline") if mark in path.read_text()]
    assert judge(SCALE_KERNEL).verdict.correct


def test_candidates_see_no_secrets_and_a_folder_of_their_own(judge: Judge) -> None:
    peek = variant(
        HOST,
        HOST + "    import os, tempfile\n"
        "    print(sorted(os.environ))\n"
        "    print(os.getcwd() == tempfile.gettempdir(), os.listdir('.'))\n",
    )
    output = judge(peek).verdict.output
    assert "PATH" in output
    for word in ("KEY", "TOKEN", "SECRET"):
        assert word not in output
    assert "True ['output.txt']" in output


@pytest.mark.parametrize("instead", ["os.mkfifo({own!r})", "os.symlink({secret!r}, {own!r})"])
def test_what_stands_in_place_of_its_output_is_not_read(
    judge: Judge, instead: str, tmp_path: Path
) -> None:
    """A pipe would hold the judge for ever; a link is read with the judge's rights."""
    (tmp_path / "secret").write_text("only for the judge")
    act = instead.format(own="output.txt", secret=str(tmp_path / "secret"))
    lines = f"import os\nprint('before')\nos.unlink('output.txt')\n{act}\n"
    began = time.monotonic()
    verdict = judge(lines + SCALE_KERNEL).verdict
    assert verdict.correct
    assert "before" in verdict.output and "only for the judge" not in verdict.output
    assert time.monotonic() - began < 30


def test_slots_work_side_by_side(executor: LocalExecutor) -> None:
    sources = [SCALE_KERNEL + f"\n# {n}" for n in range(3)] + [WRONG["value"][0]]
    found: dict[int, Judgement] = {}

    def work(number: int) -> None:
        subject = Subject(name=str(number), source=sources[number])
        found[number] = executor.run(JudgeJob(subject=subject))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(len(sources))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n].verdict.correct for n in range(4)] == [True, True, True, False]


def test_a_wrong_output_of_several_is_named(tmp_path: Path) -> None:
    problem = write_problem(
        tmp_path,
        "import torch\nN = 4096\n"
        "class Model(torch.nn.Module):\n    def forward(self, x):\n        return 2 * x, 3 * x\n"
        "def get_inputs():\n    return [torch.randn(N)]\ndef get_init_inputs():\n    return []\n",
        "two",
    )
    kernel = """
import torch
import triton
import triton.language as tl

@triton.jit
def two_kernel(x_ptr, a_ptr, b_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, i < n)
    tl.store(a_ptr + i, 2 * x, i < n)
    tl.store(b_ptr + i, 3 * x, i < n)

def kernel_function(x):
    a, b = torch.empty_like(x), torch.empty_like(x)
    two_kernel[(triton.cdiv(x.numel(), 256),)](x, a, b, x.numel(), 256)
    return a, b
"""
    executor = LocalExecutor(problem, machine=modelled(), scratch=tmp_path / "scratch", seed=0)
    try:
        for source, said in (
            (kernel, ""),
            (kernel.replace("3 * x", "4 * x"), r": output 1: \d+ of \d+ elements wrong"),
            (
                kernel.replace(
                    "a, b = torch.empty_like(x)",
                    "a, b = torch.empty((x.numel(), 1), device=x.device)",
                ),
                ": output 0: output has shape",
            ),
        ):
            verdict = executor.run(JudgeJob(subject=Subject(name="a", source=source))).verdict
            assert verdict.correct == (not said), verdict.reason
            assert re.search(said, verdict.reason), verdict.reason
    finally:
        executor.close()


def test_problem_whose_outputs_hide_in_their_rounding_uses_other_inputs(tmp_path: Path) -> None:
    """Every output is 1e30 in bfloat16, whatever is computed, on huge inputs too."""
    problem = write_problem(
        tmp_path,
        "import torch\nDTYPE = torch.bfloat16\nM = 3\nK = 4096\n"
        "class Model(torch.nn.Module):\n    def forward(self, A, B):\n        return A @ B + 1e30\n"
        "def get_inputs():\n    return [torch.rand(M, K), torch.rand(K, 1)]\n"
        "def get_init_inputs():\n    return []\n",
        "hidden",
    )
    kernel = """
import torch
import triton
import triton.language as tl

@triton.jit
def million_kernel(y_ptr):
    tl.store(y_ptr + tl.program_id(0), 1e30)

def kernel_function(A, B):
    y = torch.empty(A.shape[0], 1, dtype=A.dtype, device=A.device)
    million_kernel[(A.shape[0],)](y)
    return y
"""
    executor = LocalExecutor(problem, machine=modelled(), scratch=tmp_path / "scratch", seed=0)
    try:
        with pytest.raises(ProblemError, match="cannot tell right from wrong"):
            executor.run(JudgeJob(subject=Subject(name="a", source=kernel)))
    finally:
        executor.close()


def test_comparison_without_a_gpu_says_what_it_needs(executor: LocalExecutor) -> None:
    with pytest.raises(BeamsearchError, match="NVIDIA GPU"):
        executor.run(CompareJob(subjects=[Subject(name="eager", kind="eager")]))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["36", "77", "82"])  # 04 and 43: see the main job, and `verify`
def test_input_kernels_are_correct(name: str, tmp_path: Path) -> None:
    problem = find_problem(name)
    assert problem.input_kernel is not None
    executor = LocalExecutor(problem, machine=modelled(), scratch=tmp_path, seed=0)
    try:
        source = problem.input_kernel.read_text()
        judgement = executor.run(JudgeJob(subject=Subject(name="input", source=source)))
    finally:
        executor.close()
    assert judgement.verdict.correct, judgement.verdict.reason
    assert judgement.measurement is not None


@pytest.mark.slow
def test_servers_die_with_a_judge_that_is_killed(scale_problem: Problem, tmp_path: Path) -> None:
    import signal
    import subprocess
    import sys

    script = f"""
import os, sys
from pathlib import Path
from beamsearch.executor.local import LocalExecutor
from beamsearch.records.job import JudgeJob, Subject
from beamsearch.problem.problem import read_problem
from beamsearch.gpu.machine import modelled
problem, scratch = read_problem(Path({str(scale_problem.path)!r})), Path({str(tmp_path)!r})
executor = LocalExecutor(problem, machine=modelled(), scratch=scratch, seed=0)
sleeper = '''
import time
print("asleep")
time.sleep(600)
def kernel_function(x):
    return x
'''
print(executor._servers._process.pid, flush=True)
executor.run(JudgeJob(subject=Subject(name="a", source=sleeper)))
"""
    judge = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=Path.cwd()
    )
    assert judge.stdout is not None
    server = int(judge.stdout.readline())
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and len(family(server)) < 3:
        time.sleep(0.1)
    began = family(server)
    assert len(began) == 3  # two servers, one candidate
    judge.send_signal(signal.SIGKILL)
    judge.wait()
    while time.monotonic() < deadline and any(alive(pid) for pid in began):
        time.sleep(0.1)
    assert not [pid for pid in began if alive(pid)]


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_lost_server_is_no_verdict(scale_problem: Problem, tmp_path: Path) -> None:
    executor = LocalExecutor(scale_problem, machine=modelled(), scratch=tmp_path, seed=7)
    job = JudgeJob(subject=Subject(name="a", source=SCALE_KERNEL))
    found: list[Judgement] = []
    try:
        thread = threading.Thread(target=lambda: found.append(executor.run(job)))
        thread.start()
        process = executor._servers._process
        assert process is not None
        while not (tmp_path / "processes").exists() or not list((tmp_path / "processes").iterdir()):
            time.sleep(0.01)
        time.sleep(1)
        process.kill()
        thread.join(60)
        assert found[0].verdict.correct
    finally:
        executor.close()


def test_closing_while_a_candidate_is_judged_gives_no_verdict(
    scale_problem: Problem, tmp_path: Path
) -> None:
    executor = LocalExecutor(scale_problem, machine=modelled(), scratch=tmp_path, seed=7)
    sleeper = "import time\ntime.sleep(60)\n" + SCALE_KERNEL
    raised: list[BaseException] = []

    def work() -> None:
        try:
            executor.run(JudgeJob(subject=Subject(name="a", source=sleeper)))
        except Stopped as error:
            raised.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    while not list(tmp_path.glob("processes/*/output.txt")):
        time.sleep(0.01)
    executor.close()
    thread.join(20)
    assert raised


def test_a_twin_by_compiled_code_is_not_judged_and_names_the_first(executor: LocalExecutor) -> None:
    first = executor.run(JudgeJob(subject=Subject(name="first", source=SCALE_KERNEL)))
    seen = {str(first.verdict.code_fingerprint): "r1-w0-v0"}

    def again(source: str) -> Judgement:
        return executor.run(JudgeJob(subject=Subject(name="again", source=source), seen=seen))

    twin = again(variant("mask = index < total", "mask = total > index"))
    assert twin.verdict.outcome is Outcome.DUPLICATE
    assert twin.verdict.stage is Stage.COMPILE
    assert "r1-w0-v0" in twin.verdict.reason
    assert twin.measurement is None
    assert not any(check.stage is Stage.SMOKE for check in twin.verdict.checks)
    other = again(variant(HOST, "    y = torch.zeros_like(x)\n"))
    assert other.verdict.correct, "the same kernel after another host operation is another one"


def test_a_sweep_ranks_forms_by_modelled_times_and_leaves_equal_code_out(
    executor: LocalExecutor,
) -> None:
    forms = {
        "as it is": SCALE_KERNEL,
        "the same": variant("mask = index < total", "mask = total > index"),
        "one element a program": SCALE_KERNEL.replace("1024", "1"),
        "broken": variant("tl.load", "tl.lode"),
        "too many": SCALE_KERNEL.replace("1024", "512"),
    }
    subjects = [Subject(name=name, source=source) for name, source in forms.items()]
    sweep = executor.run(SweepJob(subjects=subjects))
    assert sweep.modelled
    assert set(sweep.times_ms) == {"as it is", "one element a program"}
    assert sweep.times_ms["one element a program"][-1] > 2 * sweep.times_ms["as it is"][-1]
    assert "as it is" in sweep.failed["the same"]
    assert "lode" in sweep.failed["broken"]


@pytest.mark.slow
def test_no_modelled_time_is_below_the_least_bytes_over_the_bandwidth(tmp_path: Path) -> None:
    """Its loops end where the data say and its maxima are assembly: the model sees little of
    them."""
    run = data_folder("artifacts") / "claude" / "43_Max_Pooling_3D" / "optimization_trace"
    problem = find_problem("43")
    executor = LocalExecutor(problem, machine=modelled(), scratch=tmp_path, seed=7)
    source = (run / "round_1" / "kernel.py").read_text()
    try:
        sweep = executor.run(SweepJob(subjects=[Subject(name="winner", source=source)]))
    finally:
        executor.close()
    assert not sweep.failed
    least_ms = least_work(problem).least_bytes / modelled().gpu.bandwidth_gb_s / 1e6
    assert least_ms == pytest.approx(2.391e9 / 4800e6, rel=0.01)
    assert sweep.times_ms["winner"][-1] >= least_ms
