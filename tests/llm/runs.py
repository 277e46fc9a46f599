"""Whole runs of a small problem with a model, as a user starts them."""

import json
import os
import sys
from pathlib import Path

from tests import PYTHONPATH, commands
from tests.server import completion
from tests.thinker import think

PROBLEM = Path(__file__).parent / "doubling"
SMALL = ["--rounds", "1", "--workers", "2", "--variants", "1", "--seed", "3"]
KEY = "sk-test-0a1b2c3d4e5f"
HIDDEN = ("OPENAI_API_KEY", "OPENAI_BASE_URL")


def command(*arguments):
    return [sys.executable, "-m", "beamsearch", *map(str, arguments)]


def environment(**more):
    clean = {name: value for name, value in os.environ.items() if name not in HIDDEN}
    # Modelled times are the same in every run, so that whole traces can be compared.
    return clean | {"PYTHONPATH": PYTHONPATH, "CUDA_VISIBLE_DEVICES": ""} | more


def beamsearch(*arguments, code=0, cwd=None, **more):
    """A command that must end with `code`; with none, however it likes."""
    done = commands.beamsearch(
        *arguments, cwd=cwd, hidden=HIDDEN, **({"CUDA_VISIBLE_DEVICES": ""} | more)
    )
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


def ledger(folder):
    """Lines of a run's ledger."""
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def requests(folder):
    """Lines of the requests a run waits for, of every model."""
    files = sorted(folder.glob("requests*.jsonl"))
    return [json.loads(line) for path in files for line in path.read_text().splitlines()]


def response(request, think=think):
    """The line a provider's batch leaves for a request, answered by the scripted thinker."""
    prompt = request["body"]["messages"][-1]["content"]
    body = completion(request["body"]["model"], prompt, think(prompt))
    return {
        "id": "batch_req_1",
        "custom_id": request["custom_id"],
        "response": {"status_code": 200, "request_id": "req_1", "body": body},
        "error": None,
    }


def refused(request):
    """The line a provider's batch leaves for a request that it failed on."""
    error = {"code": "server_error", "message": "try again"}
    return {
        "id": "batch_req_2",
        "custom_id": request["custom_id"],
        "response": None,
        "error": error,
    }


def write_lines(path, lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
