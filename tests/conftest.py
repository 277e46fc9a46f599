"""Tests marked `gpu` are skipped on a machine without an NVIDIA GPU."""

import pytest

from beamsearch.environment import devices


def pytest_collection_modifyitems(items):
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not devices():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs an NVIDIA GPU"))
