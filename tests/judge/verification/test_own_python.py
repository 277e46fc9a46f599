"""A kernel's own Python where there is no GPU to call it on."""

import pytest
import torch

from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.ahead import Captures, Means
from beamsearch.judge.rejection import Log, Rejected
from beamsearch.judge.sandbox.memory import SharedMemory
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.judge.verification.inputs import InputSets
from beamsearch.judge.verification.own_python import OwnPython, with_host_times
from beamsearch.records.measurement import Measurement
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.gpus import find_gpu
from tests.judge.conftest import SCALE_KERNEL


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_that_cannot_be_had_is_a_reason(scale_problem, tmp_path):
    gpu, servers = find_gpu("h200"), ForkServers(tmp_path, interpreter=False)
    captures = Captures(servers, gpu, meta_arguments(scale_problem), Usage(), 1, means=Means(1))
    try:
        captured, _ = captures.captured(SCALE_KERNEL, tmp_path, Log())
        (inputs,) = InputSets(scale_problem, SharedMemory("cpu"), seed=1).draw(1)
        own = OwnPython(servers, gpu, 0, tmp_path)
        with own.opened([SCALE_KERNEL, SCALE_KERNEL]) as call, pytest.raises(Rejected) as told:
            call(SCALE_KERNEL, captured.forms[0], inputs, Log())
        assert told.value.stage is Stage.PYTHON and told.value.reason.startswith("the GPU: ")
    finally:
        captures.close()
        servers.close()


@pytest.mark.parametrize(
    ("which", "asked", "left"),
    [
        ("all", ["b", "c", "a"], {"c": 20.0, "a": 20.0}),
        ("fastest", ["b", "c"], {"c": 20.0, "a": None}),
        ("none", [], {"a": None, "b": None, "c": None}),
    ],
)
def test_the_fastest_is_called_first_and_what_is_wrong_has_no_time(which, asked, left):
    given = {"gpu_uuid": "GPU-1", "visit": "v", "p20_ms": 1.0, "p80_ms": 1.0, "count": 9}
    times = {
        name: Measurement(source="measured", gpu="H200", time_ms=ms, **given)
        for name, ms in (("a", 3.0), ("b", 1.0), ("c", 2.0))
    }
    called = []

    def call(name: str) -> float:
        called.append(name)
        if name == "b":
            raise Rejected(Outcome.WRONG, Stage.PYTHON, "other results than its plan")
        return 20.0

    told, failed = with_host_times(times, call, which)
    assert called == asked and {name: time.host_us for name, time in told.items()} == left
    assert failed == ({"b": "other results than its plan"} if asked else {})
