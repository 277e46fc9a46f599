"""Tests marked `gpu` are skipped on a machine without an NVIDIA GPU; none sees another's cache."""

import os

import pytest

from beamsearch.gpu.environment import devices


def pytest_collection_modifyitems(items):
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)  # or one worker ends with them, alone
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not devices():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))


@pytest.fixture(scope="session", autouse=True)
def empty_cache(tmp_path_factory):
    """What Triton compiled for another environment holds that environment's paths."""
    os.environ["TRITON_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "triton")
