"""A first kernel that a model writes: within limits, in the ledger, and in a replay."""

import json
import shutil

import pytest

from beamsearch.records.trace import Trace
from tests.llm.runs import PROBLEM, beamsearch, ledger
from tests.server import Script, serving
from tests.thinker import think

pytestmark = pytest.mark.slow

SOURCE = (PROBLEM / "input_kernel.py").read_text()


def writes(prompt):
    """The kernel, once the first answer was refused."""
    if "Write a first kernel" not in prompt or "holds no complete kernel" not in prompt:
        return think(prompt)
    return f"Doubled.\n```python\n{SOURCE}```\n"


def test_first_kernels_keep_to_limits_and_are_replayed(tmp_path):
    problem, folder = tmp_path / "problem", tmp_path / "run"
    problem.mkdir()
    shutil.copy(PROBLEM / "problem.py", problem)
    options = ["--rounds", 1, "--workers", 1, "--variants", 1, "--output", folder]
    with serving(script=Script(think=writes)) as base_url:
        keys = {"OPENAI_API_KEY": "sk-none", "OPENAI_BASE_URL": base_url}
        # Given a limit that the first answer, which is none, uses up
        said = beamsearch("run", problem, *options, "--max-calls", 1, code=5, **keys).stderr
        assert "1 calls (--max-calls)" in said and f"resume {folder}" in said
        record = Trace(folder).run_record()
        assert record.status == "waiting" and "--max-calls" in record.stop_reason
        assert record.totals.model_calls == len(ledger(folder)) == 1

        # Then a larger one lets it go on
        beamsearch("resume", folder, "--max-calls", 100, **keys)
    assert Trace(folder).run_record().status == "finished"
    assert [line["purpose"] for line in ledger(folder)][:2] == ["first", "first"]

    # A replay asks for the kernel again, and tells what is not as it was: a prompt, and here all
    # that follows where the only worker has no answer.
    recorded = tmp_path / "recorded"
    shutil.copytree(folder, recorded)
    first = recorded / "optimization_trace/round_0/workers/w0/calls/first_reply_2.json"
    call = json.loads(first.read_text())
    first.write_text(json.dumps(call | {"prompt_sha256": "0" * 64}))
    written = recorded / "optimization_trace/round_1/workers/w0/calls/opt_reply.json"
    written.unlink()
    done = beamsearch("replay", recorded, "--output", tmp_path / "again", "--json")
    told = json.loads(done.stdout)["differences"]
    assert [(d["what"], d["where"]) for d in told][:2] == [
        ("prompt", "round 0 w0 first (attempt 2)"),
        ("prompt", "round 1 w0 reflection"),
    ]
    assert ("verdict", "r1-w0-v0") in [(d["what"], d["where"]) for d in told]
    assert told[1]["now"] == "not asked"

    # Where it comes to an error, what was different by then is told all the same.
    first.unlink()
    done = beamsearch("replay", recorded, "--output", tmp_path / "third", code=4)
    assert "recorded no reply to first" in done.stderr
    assert "kernel, r0-s0: correct -> absent" in done.stdout
