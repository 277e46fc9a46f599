"""Tests marked `gpu` are skipped on a machine without an NVIDIA GPU, of those marked `slow` one in
SAMPLED runs unless `--all` or their file is asked for; none sees another's cache, and of those
that run on a GPU one at a time. Those marked `slow(turn=N)` take turns, one of TURNS with each
commit: they are what users run, and too long for every time."""

import gc
import os
from importlib.util import find_spec
from pathlib import Path

import pytest

from beamsearch.gpu.environment import devices
from beamsearch.records.file_lock import in_turn
from tests.sample import is_drawn, is_turn

SAMPLED = 24
TURNS = 6


def pytest_addoption(parser):
    text = f"run every slow test, not the one in {SAMPLED} whose turn it is with this commit"
    parser.addoption("--all", action="store_true", help=text)


def pytest_collection_modifyitems(config, items):
    marks = {item: item.get_closest_marker("slow") for item in items}
    slow = {item.path for item, mark in marks.items() if mark}
    items.sort(key=lambda item: item.path not in slow)  # or one worker ends with them, alone
    chosen = config.option.keyword or not all(map(os.path.isdir, config.args))
    if not (config.getoption("all") or chosen):
        for item, mark in marks.items():
            # A file that is slow as a whole has a setup that its tests share.
            whole = any(m.name == "slow" for m in item.getparent(pytest.Module).own_markers)
            name = item.path.name if whole else Path(item.nodeid).name
            if not mark or mark.kwargs.get("always"):
                continue
            turn = mark.kwargs.get("turn")
            if not (is_drawn(name, SAMPLED) if turn is None else is_turn(turn, TURNS)):
                item.add_marker(pytest.mark.skip(reason="slow, and not its turn; --all runs it"))
    for item in items:
        if item.get_closest_marker("ray") and find_spec("ray") is None:
            reason = "needs Ray: pip install 'beamsearch[ray]'"
            item.add_marker(pytest.mark.skip(reason=reason))
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not devices():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory):
    """What Triton compiled for another environment holds that environment's paths."""
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "triton")


@pytest.fixture(autouse=True)
def gpu_alone(request, tmp_path_factory):
    """Two workers share the GPU: a test that times on it, or fills its memory, has it to itself,
    and keeps none of that."""
    if request.node.get_closest_marker("gpu") is None:
        yield
        return
    with in_turn(tmp_path_factory.getbasetemp().parent / "gpu.lock"):
        yield
        import torch

        gc.collect()
        torch.cuda.empty_cache()
