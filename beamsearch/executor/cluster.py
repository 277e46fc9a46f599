"""A cluster through Ray: what its machines are, which of them a run uses, and how to reach them."""

from __future__ import annotations

import importlib
import logging
import os
import socket
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from beamsearch import __version__
from beamsearch.errors import BeamsearchError, UsageError
from beamsearch.executor import node_probe
from beamsearch.executor.lane_server import AT_ONCE
from beamsearch.gpu.machine import modelled
from beamsearch.records.run import Environment, Node
from kernel_profiling.errors import one_line

CPUS_A_LANE = 4
"""Cores that a lane without a GPU is for: two interpret kernels, others compile."""
CONNECT_S = 5.0
PROBE_S = 180.0
"""What a machine may take to say what it is."""
PING_S = 60.0
"""What Ray may take to see that a machine left: 15 to 30 s by its own health checks."""
MEASURED = ("gpu", "driver", "cuda", "torch", "triton", "beamsearch")
"""What has to be the same for times of a run."""
MODELLED = ("torch", "triton", "beamsearch")
"""The same where times are modelled."""


def load_ray() -> Any:
    """Ray, which is imported by who needs it alone. Raises UsageError where it is not there."""
    try:
        return importlib.import_module("ray")
    except ImportError as error:
        raise UsageError(
            f"--ray needs Ray, which cannot be imported ({error}): pip install 'beamsearch[ray]'"
        ) from error


def connect(address: str) -> tuple[Any, bool]:
    """Ray, connected to the cluster there (`auto`: the one of this machine), and whether this call
    did it. Raises UsageError."""
    ray = load_ray()
    if ray.is_initialized():
        return ray, False
    _knock(address)
    try:
        ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, ValueError, RuntimeError) as error:
        told = one_line(str(error))
        if "Version mismatch" in str(error):
            told = f"{told}; install the same versions of Ray and Python here as there"
        raise UsageError(f"--ray {address}: {told}{_HOW}") from error
    return ray, True


_HOW = (
    "; begin a cluster with `ray start --head`, and run this on one of its machines (docs/"
    "clusters.md)"
)


def _knock(address: str) -> None:
    """Raise UsageError where nobody answers at an address; Ray alone would try for minutes."""
    place = address
    if address == "auto":
        place = os.environ.get("RAY_ADDRESS", "")
        known = Path(os.environ.get("RAY_TMPDIR") or tempfile.gettempdir()) / "ray"
        known /= "ray_current_cluster"
        if not place and known.is_file():
            place = known.read_text().strip()
    host, _, port = place.rpartition(":")
    if not host or not port.isdigit():
        return  # Ray says itself what is wrong with it
    try:
        socket.create_connection((host, int(port)), CONNECT_S).close()
    except OSError as error:
        where = "" if place == address else f" ({place})"
        raise UsageError(f"--ray {address}{where}: nobody answers there: {error}{_HOW}") from error


def look(ray: Any, *options: str) -> list[Node]:
    """All machines of the cluster, as each says of itself; one that cannot is left out."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    # By value: a machine may lack this package.
    ray.cloudpickle.register_pickle_by_value(node_probe)
    probe = ray.remote(num_cpus=0, max_retries=1)(node_probe.ask)
    asked = []
    for there in (node for node in ray.nodes() if node["Alive"]):
        where = NodeAffinitySchedulingStrategy(there["NodeID"], soft=False)
        asked.append((there, probe.options(scheduling_strategy=where).remote(*options)))
    return [_answered(ray, there, answer) for there, answer in asked]


def _answered(ray: Any, there: dict[str, Any], answer: Any) -> Node:
    try:
        text, reason = ray.get(answer, timeout=PROBE_S)
    except ray.exceptions.RayError as error:
        text, reason = "", one_line(str(error))
    if reason:
        node = Node(left_out=f"beamsearch does not begin there: {reason}")
    else:
        node = Node.model_validate_json(text)
    return named(node, there)


def named(node: Node, there: dict[str, Any]) -> Node:
    """The facts of a node with what Ray says of it."""
    has = there["Resources"]
    lanes = int(has.get("GPU", 0)) if node.gpu is not None else int(has.get("CPU", 0) / CPUS_A_LANE)
    if node.gpu is not None and not lanes:
        node = node.with_values(gpu=None, driver=None)  # Ray has none to give
        lanes = int(has.get("CPU", 0) / CPUS_A_LANE)
    return node.with_values(id=there["NodeID"], address=there["NodeManagerAddress"], lanes=lanes)


def best_kind(nodes: Sequence[Node], kind: str | None) -> Node | None:
    """One of the nodes that most GPUs are alike on, of this kind where it is given; none where no
    node has one."""
    count: Counter[tuple[Any, ...]] = Counter()
    first: dict[tuple[Any, ...], Node] = {}
    for node in nodes:
        if node.gpu is not None and not node.left_out and kind in (None, node.gpu):
            alike = tuple(getattr(node, name) for name in MEASURED)
            count[alike] += node.lanes
            first.setdefault(alike, node)
    return first[count.most_common(1)[0][0]] if count else None


def reason_unlike(node: Node, run: Environment) -> str:
    """Why a run's jobs are not done on a node: it is not as the run's machines are. Empty where it
    is."""
    return _unlike(node, run, MEASURED if run.gpu is not None else MODELLED)


def _unlike(node: Node, run: Environment, names: Sequence[str]) -> str:
    wanted = run.with_values(beamsearch=__version__)
    for name in names:
        there, here = getattr(node, name), getattr(wanted, name)
        if there != here:
            return f"{name} {there or 'none'} there, {here or 'none'} in the run"
    return ""


def environment_like(node: Node | None, target: str) -> Environment:
    """What a run on such nodes is made with; with none, this machine's with modelled times."""
    here = modelled(target).environment()
    if node is None:
        return here
    names = ("gpu", "driver", "cuda", "torch", "triton", "ncu", "python")
    there = {name: getattr(node, name) for name in names}
    return here.with_values(**there, target=node.gpu)


class Cluster:
    """The machines that a run's lanes may be on. Thread-safe."""

    def __init__(self, address: str, ray: Any, ours: bool, nodes: Sequence[Node]) -> None:
        self.ray = ray
        self.nodes = list(nodes)
        self._address = address
        self._ours = ours
        self._run: Environment | None = None
        self._lock = threading.Lock()

    @classmethod
    def at(cls, address: str, *options: str) -> Cluster:
        """The cluster there, and what its machines say of themselves. Raises UsageError."""
        ray, ours = connect(address)
        return cls(address, ray, ours, look(ray, *options))

    def serve(self, run: Environment) -> list[Node]:
        """From now on, its lanes are for such a run; all nodes, with why some are left out. Raises
        UsageError where none is left."""
        self._run = run
        self.nodes = [
            node if node.left_out else node.with_values(left_out=reason_unlike(node, run))
            for node in self.nodes
        ]
        if all(node.left_out for node in self.nodes):
            reasons = "; ".join(f"{node.address}: {node.left_out}" for node in self.nodes)
            raise UsageError(f"--ray {self._address}: no machine can work on this run: {reasons}")
        return self.nodes

    def count(self) -> int:
        """Lanes that there is room for: one a GPU, or one for so many cores."""
        used = [node for node in self.nodes if not node.left_out]
        if self._run is not None and self._run.gpu is None:
            return max(1, sum(node.lanes for node in used if node.gpu is None))
        return max(1, sum(node.lanes for node in used))

    def begin(self, actor: type[Any]) -> Any:
        """An actor that Ray finds a place for, away from the nodes that are left out."""
        assert self._run is not None
        with self._lock:
            avoided = [node.id for node in self.nodes if node.left_out]
        options: dict[str, Any] = {
            "num_cpus": 1,
            "max_restarts": 0,
            "max_concurrency": 4,
            "concurrency_groups": {"jobs": AT_ONCE},
        }
        if self._run.gpu is not None:
            options["num_gpus"] = 1
        else:
            options["scheduling_strategy"] = "SPREAD"
        if avoided:
            options["label_selector"] = {"ray.io/node-id": f"!in({','.join(avoided)})"}
        return self.ray.remote(**options)(actor).remote()

    def not_for_captures(self) -> list[str]:
        """Ray's ids of machines on which no kernel of the run is captured, since they compile
        otherwise; one without a GPU may be as the run's in this."""
        assert self._run is not None
        return [node.id for node in self.nodes if _unlike(node, self._run, MODELLED)]

    def met(self, node: Node, there: str) -> Node:
        """A node that a lane began on, by Ray's id of it, as the run sees it."""
        assert self._run is not None
        ids = {found["NodeID"]: found for found in self.ray.nodes()}
        if there not in ids:
            raise BeamsearchError("its node left as it began")
        node = named(node, ids[there])
        node = node.with_values(left_out=reason_unlike(node, self._run))
        with self._lock:
            others = [other for other in self.nodes if other.id != node.id]
            self.nodes = [*others, node]
        return node

    def is_there(self, node: str, given_up: Callable[[], bool]) -> bool:
        """Whether a machine still takes tasks; this waits until Ray knows, or it is given up."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        where = NodeAffinitySchedulingStrategy(node, soft=False)
        ping = self.ray.remote(num_cpus=0, max_retries=0)(node_probe.is_there)
        asked = [ping.options(scheduling_strategy=where).remote()]
        until = time.monotonic() + PING_S
        while not self.ray.wait(asked, timeout=1.0)[0]:
            if given_up() or time.monotonic() > until:
                return False
        try:
            self.ray.get(asked)
        except self.ray.exceptions.RayError:
            return False
        return True

    def close(self) -> None:
        """Leave the cluster, where this joined it."""
        if self._ours:
            self.ray.shutdown()


Met = Callable[[Node, str | None], None]
"""Takes a node that a lane begins on, and the UUID of its GPU."""
