"""verify: exit code 0 only where the verdict is correct, and one JSON object that says the rest."""

import json
from pathlib import Path

import pytest

from beamsearch.api.verify import merged
from beamsearch.paths import data_folder
from beamsearch.records.verdict import Check, Stage

SMALL = Path(__file__).parents[1] / "llm" / "doubling"
POOLING = data_folder("problems") / "43_Max_Pooling_3D" / "input_kernel.py"


def answer(done) -> dict:
    """The only thing on stdout."""
    (line,) = done.stdout.splitlines()
    return json.loads(line)


def test_correct_kernel(beamsearch):
    done = beamsearch("verify", str(SMALL), str(SMALL / "input_kernel.py"), "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    found = answer(done)
    assert found["verdict"] == "correct" and found["stage"] is None and found["reason"] == ""
    assert any(check["passed"] for check in found["checks"])


@pytest.mark.slow
def test_kernel_whose_assembly_the_interpreter_cannot_run_is_not_shown_correct(beamsearch):
    run = data_folder("artifacts") / "claude" / "43_Max_Pooling_3D" / "optimization_trace"
    done = beamsearch("verify", "43", str(run / "round_1" / "kernel.py"), "--json")
    assert done.returncode == 1, done.stdout + done.stderr
    found = answer(done)
    assert found["verdict"] == "not_shown_correct"
    assert "inline_asm" in found["reason"] and "a GPU would tell" in found["reason"]
    assert found["measurement"] is None


@pytest.mark.slow
def test_every_stage_is_told(beamsearch):
    kernel = str(SMALL / "input_kernel.py")
    done = beamsearch("verify", str(SMALL), kernel, "--seed", "3", "--sanitize")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    for stage in ("policy", "load", "compile", "smoke", "true_shapes", "other_shapes", "layout"):
        assert any(line.split()[:2] == ["ok", stage] for line in lines), stage
    left_out = next(line for line in lines if line.startswith("  -  not checked: "))
    assert left_out == "  -  not checked: review, determinism, timing, python, memory"
    assert any("there is no GPU here" in line for line in lines)
    assert "  -  not checked: compute-sanitizer: it needs a GPU" in lines
    assert lines[-1] == "verdict: correct, also at other shapes"


def test_what_passed_alike_is_one_line_and_what_failed_stands_alone():
    def check(name: str, message: str, passed: bool = True) -> Check:
        return Check(stage=Stage.OTHER_SHAPES, name=name, passed=passed, message=message)

    at = "right on x (3, 5)"
    checks = [
        check("long rows, own #1", at),
        check("long rows, ties #1", at),
        check("long rows, own #1", "right on x (64, 5)"),
        check("layout", ""),
        check("long rows, huge #1", "wrong", passed=False),
        check("long rows, tiny #1", "wrong", passed=False),
    ]
    assert merged(checks) == [
        ("ok  ", f"long rows: own #1, ties #1: {at}"),
        ("ok  ", "long rows: own #1: right on x (64, 5)"),
        ("ok  ", "layout"),
        ("FAIL", "long rows: huge #1: wrong"),
        ("FAIL", "long rows: tiny #1: wrong"),
    ]


def planted(old: str, new: str) -> str:
    source = POOLING.read_text()
    assert old in source
    return source.replace(old, new)


WRONG = {
    "one tap dropped": (planted("for kd in range(KERNEL_SIZE)", "for kd in range(2)"), "wrong"),
    "raises": (
        planted("    x = x.contiguous()", "    raise ValueError('no')"),
        "compile_error or crashed",
    ),
    "does not parse": ("def kernel_function(x:\n", "invalid"),
    "no entry point": ("def kernel(x): return x\n", "invalid"),
    "asks for what is not there": ("def kernel_function(x, y): return y\n", "invalid"),
    "launches nothing": ("def kernel_function(x): return x\n", "disallowed"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", WRONG.values(), ids=WRONG)
def test_bad_kernel_names_what_failed(beamsearch, case, tmp_path):
    source, verdict = case
    (tmp_path / "kernel.py").write_text(source)
    done = beamsearch("verify", "43", "kernel.py", "--json")
    assert done.returncode == 1, done.stderr
    found = answer(done)
    assert found["verdict"] in verdict.split(" or ")
    assert found["stage"] and found["reason"]
    assert "Traceback" not in done.stderr


def test_for_people_the_verdict_comes_last(beamsearch, tmp_path):
    (tmp_path / "kernel.py").write_text("def kernel_function(x, y): return y\n")
    done = beamsearch("verify", "43", "kernel.py")
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("verdict: invalid at ")
