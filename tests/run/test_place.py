"""Where a run is done on a cluster, as its machines say what they are."""

import pytest

from beamsearch.errors import UsageError
from beamsearch.executor.choice import open_executor
from beamsearch.executor.client import GIVEN
from beamsearch.executor.cluster import Cluster
from beamsearch.gpu.usage import Usage
from beamsearch.problem.problem import read_problem
from beamsearch.records.packed import opened_run
from beamsearch.run import place
from beamsearch.settings import Settings
from tests import ROOT
from tests.executor.test_cluster import A100, CPUS, H100

MEASURED = opened_run(ROOT / "artifacts" / "playbook" / "36_RMSNorm")


@pytest.fixture
def cluster(monkeypatch):
    """Makes `auto` a cluster of these nodes, that is left by itself in the end."""

    def make(*nodes):
        there = Cluster("auto", None, False, nodes)
        monkeypatch.setattr(Cluster, "at", lambda address: there)
        return there

    return make


def test_a_cluster_with_gpus_measures_on_them(cluster, monkeypatch, tmp_path):
    cluster(CPUS, H100, A100)
    found = place.find_place(Settings(ray="auto"))
    (machine,) = found.machines
    assert machine.measures and machine.device is None and machine.name == H100.gpu
    assert found.environment.gpu == H100.gpu and found.environment.triton == H100.triton
    assert [bool(node.left_out) for node in found.environment.nodes] == [True, False, True]

    # Then there is a lane for each of its GPUs, and none is told which it will be
    begun = []
    monkeypatch.setattr("beamsearch.executor.choice.on_cluster", lambda *given: begun.append)
    monkeypatch.setattr("beamsearch.executor.choice.Lanes", lambda specs, *_, **more: specs)
    specs = open_executor(
        read_problem(ROOT / "tests" / "scaling" / "problem.py"),
        found.machines,
        scratch=tmp_path,
        seed=1,
        profiler="auto",
        strict_nan=False,
        usage=Usage(),
        tell=begun.append,
        cluster=found.cluster,
    )
    assert [spec.gpu_uuid for spec in specs] == [GIVEN] * H100.lanes


def test_a_run_goes_on_on_its_own_kind_alone(cluster):
    kind = MEASURED.run_record().environment.gpu
    here = H100.with_values(gpu=kind, lanes=1)
    cluster(H100, here)
    assert place.find_place(Settings(ray="auto"), MEASURED).environment.gpu == kind
    cluster(H100)
    with pytest.raises(UsageError, match=f"measured on {kind}, and the cluster has {H100.gpu}"):
        place.find_place(Settings(ray="auto"), MEASURED)
    cluster(CPUS)
    with pytest.raises(UsageError, match="and the cluster has no GPU"):
        place.find_place(Settings(ray="auto"), MEASURED)
