"""What is read from the machine, and what is made of it."""

import os
import platform
import subprocess
import sys
from types import SimpleNamespace

import pynvml
import pytest

from beamsearch.gpu import environment
from beamsearch.gpu.environment import Device, devices, see_only, unsupported_platform
from beamsearch.gpu.gauges import GpuState, gpu_state, judge_state
from tests import ROOT

GIB = 2**30
MANAGED = {
    "nvmlInit": None,
    "nvmlDeviceGetHandleByUUID": "GPU",
    "nvmlSystemGetDriverVersion": "580.159.03",
    "nvmlDeviceGetUtilizationRates": SimpleNamespace(gpu=0),
    "nvmlDeviceGetMemoryInfo": SimpleNamespace(used=0),
    "nvmlDeviceGetTemperature": 27,
    "nvmlDeviceGetClockInfo": 1980,
    "nvmlDeviceGetCurrentClocksThrottleReasons": 0,
    "nvmlDeviceGetComputeRunningProcesses": [],
    "nvmlSystemGetProcessName": "/usr/bin/python3",
}


@pytest.fixture
def state(monkeypatch):
    """The state of a GPU whose driver answers as an idle H200's, but for what is given."""

    def look(**answers):
        for name, answer in (MANAGED | answers).items():

            def say(*_, answer=answer):
                if isinstance(answer, Exception):
                    raise answer
                return answer

            monkeypatch.setattr(pynvml, name, say)
        return gpu_state("GPU-1")

    return look


def test_idle_gpu_gives_no_warning(state):
    idle = state()
    assert idle.driver == "580.159.03" and (idle.temperature_c, idle.sm_clock_mhz) == (27, 1980)
    assert judge_state("NVIDIA H200", 140 * GIB, idle, least_bytes=GIB) == []


def test_others_throttling_and_size_are_each_told(state):
    # Given a hot 24 GiB card that another process works on, and a problem of 7.5 GB
    own, other = (
        SimpleNamespace(pid=pid, usedGpuMemory=8700 * 2**20) for pid in (os.getpid(), 4242)
    )
    busy = state(
        nvmlDeviceGetUtilizationRates=SimpleNamespace(gpu=97),
        nvmlDeviceGetMemoryInfo=SimpleNamespace(used=9000 * 2**20),
        nvmlDeviceGetTemperature=91,
        nvmlDeviceGetCurrentClocksThrottleReasons=0x20 | 0x4 | 0x1,  # idle is no throttling
        nvmlDeviceGetComputeRunningProcesses=[own, other],
    )
    users, throttle, size = judge_state("RTX", 24 * GIB, busy, least_bytes=7_516_192_768)
    assert "by others (4242 python3 (8700 MiB))" in users and "--device" in users
    assert throttle.endswith("throttling at 91 °C: too hot, power cap")
    assert "too small" in size and "28.0 GiB" in size


def test_process_hidden_by_a_container_shows_by_its_memory():
    state = GpuState(utilization_percent=0.0, memory_used_mib=60000.0)
    (told,) = judge_state("NVIDIA H200", 140 * GIB, state, least_bytes=0)
    assert "cannot be seen" in told


def test_what_a_driver_does_not_say_is_missing_not_zero(state):
    silent = pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
    some = state(nvmlDeviceGetUtilizationRates=silent, nvmlDeviceGetMemoryInfo=silent)
    assert some.utilization_percent is None and some.memory_used_mib is None
    assert some.driver == "580.159.03"
    assert state(nvmlInit=silent) == GpuState()


@pytest.mark.parametrize("name", ["Darwin", "Windows", "FreeBSD"])
def test_platforms_without_triton_get_one_sentence(name, monkeypatch):
    monkeypatch.setattr(platform, "system", lambda: name)
    told = unsupported_platform()
    assert told and "\n" not in told and "Triton" in told


def test_rocm_gets_one_sentence_and_run_refuses_with_it(tmp_path):
    # Given an installation whose torch calls itself a ROCm build
    info = tmp_path / "torch-2.11.0+rocm7.1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.11.0+rocm7.1\n")
    done = subprocess.run(
        [sys.executable, "-m", "beamsearch", "run", "43"],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "ROCm" in done.stderr and len(done.stderr.strip().splitlines()) == 1


def test_a_process_that_sees_some_gpus_alone_knows_them(monkeypatch):
    there = [Device(number, "NVIDIA H200", f"GPU-{number}", 140 * GIB) for number in range(4)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(environment, "_SEEN", [])
    devices.cache_clear()
    try:
        assert devices() == ()  # the driver's word, or that there is none
        see_only([there[3], there[1]])
        assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-3,GPU-1"
        assert [(device.index, device.uuid) for device in devices()] == [(0, "GPU-3"), (1, "GPU-1")]
    finally:
        devices.cache_clear()
