"""What `call.py` is to call, as a file."""

import json
from pathlib import Path

from beamsearch.judge.arguments import derive_seed
from beamsearch.judge.capture.forms import Form
from beamsearch.judge.runner.reference import problem_message
from beamsearch.problem.problem import Problem

CALL = "beamsearch.judge.nvidia_tools.call"
"""The module that makes the call."""
PUBLIC_SEED = 0
"""Inputs that are nobody's secret: no verdict rests on them."""


def write_call(spec: Path, problem: Problem, form: Form, device: int, use: str) -> None:
    """What `beamsearch.judge.nvidia_tools.call` is to call; `use` names its inputs' seed."""
    call = {
        "problem": problem_message(problem),
        "plan": form.plan.model_dump(mode="json"),
        "binaries": [binary.model_dump(mode="json") for binary in form.compiled.binaries],
        "device": device,
        "seed": derive_seed(PUBLIC_SEED, problem, use),
    }
    spec.write_text(json.dumps(call))
