"""What is read from the machine, and what is made of it."""

import os
import platform
import subprocess
import sys

import pytest

from beamsearch.gpu.environment import GpuState, judge_state, read_state, unsupported_platform
from tests import ROOT

GIB = 2**30


def test_idle_gpu_gives_no_warning():
    # Given nvidia-smi's own words for an idle H200
    plain = ["580.159.03", "0", "0", "27"]
    idle = read_state(plain, ["Not Active"] * 5, "", own=1)
    assert idle.driver == "580.159.03" and idle.temperature_c == 27
    assert judge_state("NVIDIA H200", 140 * GIB, idle, least_bytes=GIB) == []


def test_others_throttling_and_size_are_each_told():
    # Given a hot 24 GiB card that another process works on, and a problem of 7.5 GB
    plain = ["580.1", "97", "9000", "91"]
    reasons = ["Not Active", "Active", "Not Active", "Not Active", "Active"]
    busy = read_state(plain, reasons, "4242, /usr/bin/python3, 8700\n", own=1)
    users, throttle, size = judge_state("RTX", 24 * GIB, busy, least_bytes=7_516_192_768)
    assert "4242 python3 (8700 MiB)" in users and "--device" in users
    assert "91 °C" in throttle and "too hot" in throttle and "power cap" in throttle
    assert "too small" in size and "28.0 GiB" in size


def test_own_process_is_no_other():
    mine = read_state(["580.1", "0", "500", "40"], [], "77, python, 400\n", own=77)
    assert mine.processes == ()


def test_process_hidden_by_a_container_shows_by_its_memory():
    state = GpuState(utilization_percent=0.0, memory_used_mib=60000.0)
    (told,) = judge_state("NVIDIA H200", 140 * GIB, state, least_bytes=0)
    assert "cannot be seen" in told


def test_fields_that_a_driver_does_not_know_are_missing_not_zero():
    state = read_state(["470.1", "[N/A]", "[Not Supported]", "40"], [], "", own=1)
    assert state.utilization_percent is None and state.memory_used_mib is None


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
