"""A cluster of three nodes on this machine, of Ray's own processes."""

import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests import PYTHONPATH
from tests.processes import children

STORE_BYTES = 80 << 20
"""Memory for objects, of which there are next to none."""


class Nodes:
    """The first has the driver, and is not to be killed; the others come and go."""

    def __init__(self, folder, cpus=1):
        from ray.cluster_utils import Cluster

        self.more = {"num_cpus": cpus, "num_gpus": 0, "object_store_memory": STORE_BYTES}
        self.folder = folder
        with elsewhere(folder):
            self.cluster = Cluster(
                initialize_head=True, head_node_args=self.more | {"include_dashboard": False}
            )
            self.others = [self.cluster.add_node(**self.more) for _ in range(2)]
        self.address = self.cluster.address

    def add(self):
        """One more node."""
        with elsewhere(self.folder):
            self.others.append(self.cluster.add_node(**self.more))

    def kill(self, node):
        """End all processes of a node at once, as of a machine that loses power."""
        for info in node.all_processes["raylet"]:
            for pid in [info.process.pid, *children(info.process.pid)]:
                os.kill(pid, signal.SIGKILL)
        self.others.remove(node)

    def close(self):
        self.cluster.shutdown()


@contextmanager
def begun(folder):
    """Three nodes whose processes find this package."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PYTHONPATH", PYTHONPATH)
        there = Nodes(folder)
        try:
            yield there
        finally:
            there.close()


@contextmanager
def elsewhere(folder):
    """Ray's processes begin in the current folder, and no other machine has that of the driver."""
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
