"""A kernel that one lane of a machine captured is known to the others."""

from beamsearch.gpu.machine import modelled
from beamsearch.gpu.usage import Usage
from beamsearch.judge.arguments import meta_arguments
from beamsearch.judge.capture.ahead import Captures, Means
from beamsearch.judge.once import OncePerMachine
from beamsearch.judge.rejection import Log
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.problem.problem import read_problem
from tests import ROOT

PROBLEM = ROOT / "tests" / "scaling" / "problem.py"
SOURCE = (PROBLEM.parent / "input_kernel.py").read_text()


def test_a_lane_that_can_capture_nothing_has_what_another_captured(tmp_path):
    meta, gpu = meta_arguments(read_problem(PROBLEM)), modelled().gpu
    once = OncePerMachine(tmp_path)
    found = []
    for name in ("one", "other"):
        servers = ForkServers(tmp_path / name, interpreter=False)
        lane = Captures(servers, gpu, meta, Usage(), 1, means=Means(1, once=once))
        if found:
            servers.close()
        try:
            found.append(lane.captured(SOURCE, tmp_path / name, Log()))
            times = lane.tuned("key", lambda: {len(found): 1.0})
        finally:
            servers.close()
            lane.close()
    (one, path), (other, moved_to) = found
    assert path != moved_to
    assert [f.compiled for f in one.forms] == [f.compiled for f in other.forms]
    assert all(k.source_file == moved_to for f in other.forms for k in f.plan.kernels)
    assert times == {1: 1.0}
