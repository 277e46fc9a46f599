"""What a candidate's process tells, and leaves: whatever it is, no reader may fail."""

from __future__ import annotations

import json
import socket
import subprocess
import sys

import pytest
from pydantic import ValidationError

from beamsearch.judge.capture.ahead import MOST_FORMS, Answer
from beamsearch.judge.capture.forms import Form, none_of
from beamsearch.judge.capture.launches import MOST_CONFIGS
from beamsearch.judge.rejection import MOST_REASON, Rejected, names_in, number_in, rejection_of
from beamsearch.judge.sandbox.clean_environment import remove
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.sandbox.protocol import (
    HEADER,
    MOST_INTEGER,
    DeadlineMissed,
    Gone,
    ToldError,
    receive,
)
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.gpus import find_gpu

PLAN = {"capability": 90, "triton": "3", "kernels": [], "buffers": [], "steps": [], "results": []}


def received(text: str) -> object:
    """What a message of this text is read as."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(HEADER.pack(len(text)) + text.encode())
        return receive(ours)


def test_text_of_half_characters_is_made_whole_wherever_it_stands():
    told = {"a\ud800": ["\udfff", {"b": "\ud800"}], "kept": "é \U0001f600"}
    wanted = {"a?": ["?", {"b": "?"}], "kept": "é \U0001f600"}
    assert received(json.dumps(told)) == wanted


@pytest.mark.parametrize(
    "told",
    [
        '{"a": ' + "[" * 100 + "]" * 100 + "}",
        '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
        json.dumps({"a": MOST_INTEGER}),
        json.dumps({"a": [-(10**4000)]}),
        "[1]",
        '{"a": ',
    ],
    ids=["nested", "deeply nested", "beyond 64 bits", "of thousands of digits", "list", "broken"],
)
def test_what_no_reader_could_take_is_no_message(told):
    with pytest.raises(Gone):
        received(told)


def test_the_largest_numbers_and_a_plans_levels_are_a_message():
    told = {"a": [MOST_INTEGER - 1, -(2**63), 1.5, True, None], "b": [[[[[[[[1]]]]]]]]}
    assert received(json.dumps(told)) == told


@pytest.mark.parametrize("told", [[1], "3", None, {}, -1, float("nan"), float("inf")])
def test_what_is_no_number_counts_nothing(told):
    assert number_in(told) == 0


def test_numbers_and_names_are_taken_as_they_are():
    assert number_in(2.5) == 2.5
    assert number_in(3) == 3
    assert names_in(["a", 1, ["b"], "c"]) == ["a", "c"]
    assert names_in(5) == []


def test_an_error_of_any_form_is_a_rejection_of_bounded_length():
    details = {"type": "TooMuchWork", "work": [1], "line": {}, "text": 5, "message": "m" * 10**6}
    assert rejection_of(Stage.SMOKE, "a call", ToldError(details)).work == 0
    long = {"type": "ValueError", "line": "l" * 10**6, "text": "t" * 10**6, "message": "m" * 10**6}
    rejection = rejection_of(Stage.SMOKE, "a call", ToldError(long))
    assert rejection.outcome is Outcome.CRASHED
    assert len(rejection.reason) < 2000
    assert len(Rejected(Outcome.WRONG, Stage.SMOKE, "x" * 10**6).reason) < MOST_REASON + 10


@pytest.mark.parametrize(
    ("error", "hint"),
    [
        ("an illegal memory access was encountered", "outside its tensors"),
        ("misaligned address", "outside its tensors"),
        ("device-side assert triggered", "outside its tensors"),
        ("an illegal instruction was encountered", "tensor descriptors"),
        ("too many resources requested: out of resources", "shared memory"),
        ("unspecified launch failure", None),
    ],
)
def test_an_error_of_cuda_hints_at_what_is_usually_behind_it(error, hint):
    details = {"type": "CudaError", "message": f"CUDA error: {error}\nmore"}
    reason = rejection_of(Stage.TIMING, "a call", ToldError(details)).reason
    assert reason.startswith(f"a call: CUDA error: {error}")
    assert (hint is None and ";" not in reason) or (hint is not None and hint in reason)
    assert (hint == "outside its tensors") == ("outside its tensors" in reason)


def test_where_every_configuration_fails_the_first_is_named():
    forms = [Form(plan=None, compiled=None, pins={"f": f"BLOCK: {n}"}) for n in (64, 128)]
    told = none_of(forms, Rejected(Outcome.CRASHED, Stage.TIMING, "an illegal instruction"))
    assert (told.outcome, told.stage) == (Outcome.CRASHED, Stage.TIMING)
    assert told.reason == (
        "each of its 2 configurations fails, the first (BLOCK: 64) so: an illegal instruction"
    )


@pytest.mark.parametrize(
    "told",
    [
        {"configs": [1]},
        {"configs": {"f": "x"}},
        {"configs": {f"f{number}": [] for number in range(MOST_CONFIGS + 1)}},
        {"by_position": [1, 2]},
        {"more": 1},
    ],
)
def test_an_answer_of_another_form_is_none(told):
    with pytest.raises(ValidationError):
        Answer.model_validate({"plan": PLAN, **told})


def test_no_more_configurations_are_tried_than_a_kernel_may_have():
    few = Answer.model_validate({"plan": PLAN, "configs": {"f": ["a", "b"], "g": ["c", "d"]}})
    assert few.pins() == [{"f": "a", "g": "c"}, {"f": "b", "g": "c"}, {"f": "a", "g": "d"}]
    many = {f"f{number}": [str(n) for n in range(10_000)] for number in range(MOST_CONFIGS)}
    assert len(Answer.model_validate({"plan": PLAN, "configs": many}).pins()) == MOST_FORMS


def test_all_requests_of_a_process_together_have_a_deadline(tmp_path):
    source = tmp_path / "sources" / "k" / "kernel.py"
    source.parent.mkdir(parents=True)
    source.write_text("import time\ntime.sleep(60)\n")
    gpu = find_gpu("h200").model_dump(mode="json")
    servers = ForkServers(tmp_path, interpreter=False)
    try:
        with (
            servers.fork("capturing", key="k", lifetime_s=2) as process,
            pytest.raises(DeadlineMissed),
        ):
            process.ask("load", 60, source=str(source), gpu=gpu)
    finally:
        servers.close()


def test_folders_deeper_than_pythons_stack_are_removed(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    nest = "import os\nfor _ in range(1500):\n    os.mkdir('d')\n    os.chdir('d')\n"
    subprocess.run([sys.executable, "-c", nest], cwd=folder, check=True)
    remove(folder)
    assert not folder.exists()
    remove(folder)  # there is nothing to do
