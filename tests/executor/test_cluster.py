"""Which machines of a cluster a run uses, without Ray; and what is said where Ray is not there."""

import sys

import pytest

from beamsearch import __version__
from beamsearch.cli.doctor import look
from beamsearch.errors import UsageError
from beamsearch.executor.cluster import (
    Cluster,
    best_kind,
    environment_like,
    named,
    reason_unlike,
)
from beamsearch.executor.node_folder import hidden_here
from beamsearch.executor.node_probe import ask
from beamsearch.gpu.machine import modelled
from beamsearch.judge.sandbox.processes import ForkServers
from beamsearch.records.run import Node
from beamsearch.settings import read_settings

H100 = Node(
    id="a",
    address="10.0.0.1",
    lanes=8,
    gpu="NVIDIA H100 80GB HBM3",
    driver="580.1",
    cuda="12.9",
    torch="2.11.0",
    triton="3.6.0",
    python="3.11.7",
    beamsearch=__version__,
)
OTHER = H100.with_values(id="b", address="10.0.0.2", torch="2.10.0")
A100 = H100.with_values(id="c", address="10.0.0.3", gpu="NVIDIA A100-SXM4-80GB", lanes=4)
CPUS = H100.with_values(id="d", address="10.0.0.4", gpu=None, driver=None, lanes=2)


def test_a_run_is_on_the_kind_of_which_there_is_most_and_goes_on_on_its_own():
    nodes = [A100, CPUS, OTHER.with_values(lanes=2), H100]
    assert best_kind(nodes, None) == H100
    assert best_kind(nodes, A100.gpu) == A100
    assert best_kind([CPUS], None) is None
    assert best_kind([H100.with_values(left_out="no torch"), A100], None) == A100
    assert best_kind([H100], "NVIDIA H200") is None


def test_nodes_that_differ_are_left_out_and_say_why():
    run = environment_like(H100, "h200")
    assert run.gpu == run.target == H100.gpu
    cluster = Cluster("auto", None, False, [H100, OTHER, A100, CPUS])
    told = {node.id: node.left_out for node in cluster.serve(run)}
    assert told == {
        "a": "",
        "b": "torch 2.10.0 there, 2.11.0 in the run",
        "c": "gpu NVIDIA A100-SXM4-80GB there, NVIDIA H100 80GB HBM3 in the run",
        "d": "gpu none there, NVIDIA H100 80GB HBM3 in the run",
    }
    assert cluster.count() == 8
    old = H100.with_values(beamsearch="0.0.1")
    assert reason_unlike(old, run) == f"beamsearch 0.0.1 there, {__version__} in the run"


def test_without_gpus_times_are_modelled_on_the_cores():
    run = modelled().environment()
    alike = CPUS.with_values(torch=run.torch, triton=run.triton)
    cluster = Cluster("auto", None, False, [alike, alike.with_values(id="e"), H100])
    cluster.serve(run)
    assert cluster.count() == 4
    with pytest.raises(UsageError, match=r"no machine can work on this run: 10.0.0.4: torch"):
        Cluster("auto", None, False, [CPUS.with_values(torch="1.0")]).serve(run)


def test_a_gpu_that_ray_does_not_give_is_none():
    there = {"NodeID": "a", "NodeManagerAddress": "10.0.0.1", "Resources": {"CPU": 8.0}}
    node = named(H100, there)
    assert node.gpu is None and node.lanes == 2
    assert named(H100, there | {"Resources": {"GPU": 3.0, "CPU": 8.0}}).lanes == 3


def test_a_machine_says_what_it_is_or_why_it_cannot(monkeypatch):
    text, reason = ask("--lacking")
    assert not reason
    assert Node.model_validate_json(text).beamsearch == __version__
    monkeypatch.setattr(sys, "path", [])
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    text, reason = ask()
    assert not text and "/nowhere/python" in reason


def test_candidates_see_neither_the_run_nor_the_sockets_of_ray(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    hidden = hidden_here(tmp_path / "run" / ".scratch" / "lane-0")
    assert hidden == [str(tmp_path / "run"), str(tmp_path / "ray")]
    servers = ForkServers(tmp_path / "lane", interpreter=False, hidden=hidden)
    assert servers._hidden == [str(tmp_path / "lane"), *hidden]


def test_without_ray_it_is_said_how_to_get_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install 'beamsearch\[ray\]'"):
        Cluster.at("auto")
    lines = {line.what: line for line in look(None, "auto")}
    assert lines["ray"].level == "fail" and "pip install" in lines["ray"].found


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ({"lanes": 2}, "--lanes is for a cluster"),
        ({"ray": "auto", "gpus": "all"}, "all say where to run"),
        ({"ray": "auto", "device": 0}, "all say where to run"),
    ],
)
def test_settings_that_contradict_are_refused(flags, told):
    with pytest.raises(UsageError, match=told):
        read_settings(None, flags)


def test_none_is_this_machine():
    assert read_settings(None, {"ray": "none"}).ray is None


@pytest.mark.ray
def test_an_address_that_nobody_answers_is_said_at_once():
    with pytest.raises(UsageError, match=r"127.0.0.1:9: nobody answers there"):
        Cluster.at("127.0.0.1:9")
    with pytest.raises(UsageError, match="nonsense"):
        Cluster.at("nonsense")
