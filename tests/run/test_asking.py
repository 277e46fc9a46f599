"""A whole run against a model that makes mistakes: repairs, reviews, and what they leave."""

import re
import subprocess

import pytest

from beamsearch.problem.problem import find_problem
from beamsearch.records.call import Call
from beamsearch.records.trace import Trace, read_record
from beamsearch.records.verdict import Outcome
from tests import ROOT
from tests.commands import beamsearch
from tests.server import Script, serving
from tests.thinker import clumsy, read_sections, think
from tests.traces import differences

pytestmark = pytest.mark.slow


def careless(prompt: str) -> str:
    """The replies of `clumsy`, but for the reflections of round 2, which are nothing."""
    sections = read_sections(prompt)
    if "What came of it" in sections and "r2-w0" in sections["What came of it"]:
        return " "
    return clumsy(prompt)


def test_what_fails_is_repaired_with_its_own_error_and_a_stop_in_between_changes_nothing(tmp_path):
    """Each kernel has two names misspelt, so that the first repair meets the second error."""
    folder, again = tmp_path / "run", tmp_path / "again"
    options = ["--rounds", 2, "--workers", 1, "--variants", 1, "--seed", 5, "--review"]
    script = Script(think=careless)
    with serving(script=script) as base_url:
        endpoint = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": base_url}
        result = beamsearch(
            "run", ROOT / "tests" / "scaling", *options, "--output", folder, **endpoint
        )
        assert result.returncode == 0, result.stderr
        assert "note: r2-w0: its reflection could not be read: " in result.stdout
        assert re.search(r"^models: \d+ calls, .* tokens in ", result.stdout, re.MULTILINE)

        trace = Trace(folder)
        first = trace.round_record(1).candidates
        assert [c.name for c in first] == ["r1-w0-v0", "r1-w0-v0-f1", "r1-w0-v0-f2"]
        failed, halfway, repaired = first
        assert (
            failed.verdict.outcome is Outcome.COMPILE_ERROR and "programid" in failed.verdict.reason
        )
        assert (
            halfway.verdict.outcome is Outcome.COMPILE_ERROR and "stores" in halfway.verdict.reason
        )
        assert repaired.verdict.correct and repaired.parent == "r0-s0"
        assert repaired.repair_of == "r1-w0-v0-f1" and repaired.measurement
        assert trace.round_record(1).best == "r1-w0-v0-f2", "a repair counts like any candidate"

        worker = trace.worker(1, 0)
        asked = (worker / "r1-w0-v0-f2_prompt.txt").read_text()
        assert "no attribute 'stores'" in asked
        assert "programid" in asked, "what was repaired before is told"
        calls = [read_record(path, Call) for path in worker.glob("calls/*.json")]
        assert {(c.purpose, c.subject) for c in calls} == {
            ("diagnosis", ""),
            ("variants", ""),
            ("review", ""),
            ("repair", "r1-w0-v0-f1"),
            ("repair", "r1-w0-v0-f2"),
            ("reflection", ""),
        }
        told = (worker / "reflexion_prompt.txt").read_text()
        assert "### `r1-w0-v0-f1`" in told and "was predicted" in told

        later = (trace.worker(2, 0) / "opt_prompt.txt").read_text()
        assert "repairs `r1-w0-v0-f1`" in later and "1 kernels, 1 correct" in later

        forecasts = [c.forecast for c in first]
        assert forecasts[0].fails and forecasts[1:] == [None, None]
        review = trace.run_record().totals.review
        assert (review.judged, review.flags, review.right, review.missed) == (2, 2, 2, 0)
        shown = beamsearch("show", folder).stdout
        assert "reviews: 2 of 2 flags right, 0 of 2 failures missed, 0 set aside" in shown
        structured = [
            body["response_format"] for body in script.requests if "response_format" in body
        ]
        assert {s["json_schema"]["name"] for s in structured} == {
            "diagnosis",
            "reflection",
            "review",
        }

        # The same run, stopped before the second repair's reply was kept.
        subprocess.run(["cp", "-r", folder, again], check=True)
        stopped = Trace(again).worker(1, 0)
        for path in [
            *again.glob("optimization_trace/round_2/**/*"),
            *stopped.glob("*-f2*"),
            *stopped.glob("reflexion*"),
            *stopped.glob("calls/*-f2*"),
            stopped / "benchmark_results.json",
            *again.glob("optimization_trace/round_1/*.*"),
        ]:
            if path.is_file() and path.name != "plan.json":
                path.unlink()
        result = beamsearch("resume", again, **endpoint)
        assert result.returncode == 0, result.stderr
    assert differences(folder, again) == []


def test_a_problem_without_a_kernel_gets_its_first_from_the_model(tmp_path):
    """The first answer does not compile; the second, which sees why, is the run's input kernel."""
    problem = find_problem("36")
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "problem.py").write_text(problem.source)
    source = problem.input_kernel.read_text()

    def writes(prompt):
        if "Write a first kernel" not in prompt:
            return think(prompt)
        assert think(prompt)  # the prompt is whole
        known = "has no attribute" in prompt
        kernel = source if known else source.replace("tl.sqrt(", "tl.root(")
        return f"A program owns a run of pixels.\n```python\n{kernel}```\n"

    options = ["--rounds", 1, "--workers", 1, "--variants", 1, "--output", tmp_path / "run"]
    refused = beamsearch("run", tmp_path / "norm", *options, "--llm", "playbook")
    assert refused.returncode == 2 and "--kernel" in refused.stderr
    with serving(script=Script(think=writes)) as base_url:
        endpoint = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": base_url}
        result = beamsearch("run", tmp_path / "norm", *options, **endpoint)
    assert result.returncode == 0, result.stderr
    trace = Trace(tmp_path / "run")
    assert trace.input_file.read_text() == source
    folder = trace.worker(0, 0)
    assert "has no attribute 'root'" in (folder / "first_prompt_2.txt").read_text()
    assert len(list(folder.glob("calls/*.json"))) == 2
    assert trace.run_record().status == "finished"
