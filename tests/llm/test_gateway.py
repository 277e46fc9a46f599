"""A whole run through a gateway that nobody here wrote, and with faults put between.

The gateway is LiteLLM's proxy (`pip install 'beamsearch[gateway]'`, or BEAMSEARCH_GATEWAY names the
`litellm` command of another environment).
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import pytest

from beamsearch.llm.endpoint import DEFAULT_MODEL
from tests.llm.between import between
from tests.llm.runs import PROBLEM, SMALL, beamsearch, ledger
from tests.server import Script, serving
from tests.traces import differences

GATEWAY = (
    os.environ.get("BEAMSEARCH_GATEWAY")
    or shutil.which("litellm")
    or shutil.which("litellm", path=str(Path(sys.executable).parent))
)
UPSTREAM_KEY, GATEWAY_KEY = "sk-upstream-77aa", "sk-gateway-1234567890abcdef"
FAULTS = ["429", "500", "cut", "invalid_json", "endless", "no_choices", "500", "429"]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(GATEWAY is None, reason="LiteLLM's proxy is not installed"),
]


@contextmanager
def gateway(upstream, folder):
    """LiteLLM's proxy before an upstream; gives its base URL."""
    config = folder / "gateway.yaml"
    model = {"model": f"openai/{DEFAULT_MODEL}", "api_base": upstream, "api_key": UPSTREAM_KEY}
    config.write_text(  # JSON is YAML
        json.dumps(
            {
                "model_list": [{"model_name": DEFAULT_MODEL, "litellm_params": model}],
                "litellm_settings": {"num_retries": 0},
                "router_settings": {"num_retries": 0, "disable_cooldowns": True},
                "general_settings": {"master_key": GATEWAY_KEY},
            }
        )
    )
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    log = (folder / "gateway.log").open("w")
    process = subprocess.Popen(
        [GATEWAY, "--config", config, "--host", "127.0.0.1", "--port", str(port)],
        stdout=log,
        stderr=subprocess.STDOUT,
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "LITELLM_LOCAL_MODEL_COST_MAP": "1"},
    )
    try:
        deadline = time.monotonic() + 180
        while True:
            try:
                address = f"http://127.0.0.1:{port}/health/liveliness"
                urllib.request.urlopen(address, timeout=5).close()
                break
            except (OSError, urllib.error.HTTPError):
                said = (folder / "gateway.log").read_text()[-2000:]
                assert process.poll() is None, said
                assert time.monotonic() < deadline, said
                time.sleep(0.5)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        process.terminate()
        process.wait(30)
        log.close()


def test_a_run_through_a_gateway_ends_the_same_with_faults_between(tmp_path):
    script = Script(key=UPSTREAM_KEY)
    hasty = tmp_path / "hasty.toml"
    hasty.write_text("answer_timeout_s = 15\n")  # how long the reply that never ends is borne
    calm, stormy = tmp_path / "calm", tmp_path / "stormy"
    options = [*SMALL, "--llm", "openai"]
    with serving(script=script) as upstream, gateway(upstream, tmp_path) as base_url:
        # Given a run through the gateway
        keys = {"OPENAI_API_KEY": GATEWAY_KEY, "OPENAI_BASE_URL": base_url}
        beamsearch("run", PROBLEM, *options, "--output", calm, **keys)
        asked = len(script.requests)

        # When the same run meets every fault on its way there
        with between(base_url, FAULTS) as (faulty, met):
            keys["OPENAI_BASE_URL"] = faulty
            beamsearch("run", PROBLEM, *options, "--config", hasty, "--output", stormy, **keys)

    # Then the model was asked for structured answers, the runs are the same, and their ledgers too
    forms = [r["response_format"]["type"] for r in script.requests if "response_format" in r]
    assert forms and set(forms) == {"json_schema"}
    assert sorted(met) == sorted(FAULTS)
    assert differences(calm, stormy, unlike=("answer_timeout_s",)) == []
    one, other = ledger(calm), ledger(stormy)
    assert len(one) == len(other) == asked
    assert sum(line["retries"] for line in one) == 0
    assert sum(line["retries"] for line in other) == len(FAULTS)
    served = len(script.requests) - asked
    assert served == asked + len([fault for fault in FAULTS if fault not in ("429", "500")])
    for folder in (calm, stormy):
        for path in folder.rglob("*"):
            assert path.is_dir() or GATEWAY_KEY.encode() not in path.read_bytes()
