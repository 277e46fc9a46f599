"""Which GPUs a run is on, as it is asked for them."""

import pytest

from beamsearch.errors import UsageError
from beamsearch.gpu import environment, machine
from beamsearch.gpu.environment import Device
from beamsearch.gpu.machine import find_machines


def there(monkeypatch, *names):
    """A machine with these GPUs."""
    devices = tuple(Device(n, name, f"GPU-{n}", 80 << 30) for n, name in enumerate(names))
    for module in (environment, machine):
        monkeypatch.setattr(module, "devices", lambda: devices)


H100, A100 = "NVIDIA H100 80GB HBM3", "NVIDIA A100-SXM4-80GB"


def test_all_or_numbers_name_the_gpus_and_nothing_means_one(monkeypatch):
    there(monkeypatch, H100, H100, H100)
    assert [m.uuid for m in find_machines(gpus="all")] == ["GPU-0", "GPU-1", "GPU-2"]
    assert [m.uuid for m in find_machines(gpus="2,0")] == ["GPU-2", "GPU-0"]
    assert [m.uuid for m in find_machines()] == ["GPU-0"]
    assert [m.uuid for m in find_machines(1)] == ["GPU-1"]


@pytest.mark.parametrize("asked", ["all", "0,1"])
def test_gpus_of_several_kinds_are_refused_with_their_names(monkeypatch, asked):
    there(monkeypatch, H100, A100)
    with pytest.raises(UsageError) as told:
        find_machines(gpus=asked)
    assert H100 in str(told.value) and A100 in str(told.value)
    assert "--gpus 0," in str(told.value)
    assert len(find_machines(gpus=asked, mixed=True)) == 2


def test_gpus_that_are_not_there_are_an_error_that_says_what_is(monkeypatch):
    there(monkeypatch, H100)
    with pytest.raises(UsageError, match="--gpus 0,1: this machine has devices 0 to 0"):
        find_machines(gpus="0,1")
    there(monkeypatch)
    with pytest.raises(UsageError, match="--gpus all: this machine has no NVIDIA GPU"):
        find_machines(gpus="all")
