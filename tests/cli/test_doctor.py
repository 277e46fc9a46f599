"""doctor: each line says what was found, and what to do where something is missing."""

import json

import pytest


def test_machine_without_a_gpu_can_still_do_the_main_job(beamsearch):
    done = beamsearch("doctor", "--json", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(done.stdout)
    lines = {line["what"]: line for line in told["lines"]}
    assert told["ok"] is True
    assert lines["torch"]["level"] == lines["triton"]["level"] == "ok"
    assert lines["gpu"]["level"] == "warn" and "modelled" in lines["gpu"]["found"]
    assert "playbook" in lines["endpoint"]["found"]


def test_device_that_is_not_there_fails(beamsearch):
    done = beamsearch("doctor", "--device", "9", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 1
    assert "fail" in done.stdout and "--device 9" in done.stdout


@pytest.mark.slow
def test_endpoint_that_refuses_is_a_warning_with_its_address(beamsearch):
    # Port 9 (discard) of this machine: nobody listens there
    done = beamsearch("doctor", OPENAI_BASE_URL="http://127.0.0.1:9/v1", OPENAI_API_KEY="sk-secret")
    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line[5:].startswith("endpoint")]
    assert line.startswith("warn") and "127.0.0.1:9" in line
    assert "sk-secret" not in done.stdout + done.stderr


@pytest.mark.slow
def test_cache_that_cannot_be_written_is_a_warning(beamsearch):
    done = beamsearch("doctor", XDG_CACHE_HOME="/proc/nowhere", CUDA_VISIBLE_DEVICES="")
    assert done.returncode == 0
    assert "/proc/nowhere/beamsearch cannot be written" in done.stdout
