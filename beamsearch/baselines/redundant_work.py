"""What a problem's reference gives away: outputs, inputs and weights that make no difference.

`python -m beamsearch.baselines.redundant_work SPEC DEVICE` examines, and prints the record.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from beamsearch.baselines.cache import cached, digest_of
from beamsearch.baselines.process import answer_of
from beamsearch.errors import BeamsearchError
from beamsearch.gpu.environment import devices
from beamsearch.gpu.usage import Usage
from beamsearch.judge.runner.reference import problem_message, read_problem_message
from beamsearch.judge.verification.oracle import find_updates
from beamsearch.paths import cache_folder
from beamsearch.problem.instance import instantiate
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from kernel_profiling.profile import GivesAway

if TYPE_CHECKING:
    import torch

TIMEOUT_S = 120.0
"""Some dozen draws of the largest problems take seconds on a GPU, and of shrunk ones on a CPU."""
SHRUNK_ELEMENTS = 1 << 18
"""Elements without a GPU: enough that edges weigh little, few enough for seconds."""
QUIET = 8
"""Draws in a row that change nothing before what is left is believed. An element that is zero by
chance in a share p of the draws survives n of them with p^n, and a tensor of such elements would
still lose some in each."""
MOST_DRAWS = 64
"""More than a window of 3 x 3 x 3 has elements: in each draw another may be the largest."""
OWN_DRAWS = 3
"""Draws as they are, before inputs that seem to make no difference are pushed to extremes."""


@dataclass(frozen=True)
class Draw:
    """A reference on one draw of its inputs and weights."""

    call: Callable[[], list[torch.Tensor]]
    """Runs the reference on `tensors`, under autograd."""
    tensors: dict[str, torch.Tensor]
    """Inputs and parameters by name; the reference reads these very tensors."""


@dataclass
class _Seen:
    """The first draw, and masks of what was true in every draw so far."""

    inputs: dict[str, Any] = field(default_factory=dict)
    outputs: list[Any] = field(default_factory=list)
    zero: dict[Any, Any] = field(default_factory=dict)
    same: dict[Any, Any] = field(default_factory=dict)
    repeated: dict[Any, Any] = field(default_factory=dict)
    unused: dict[Any, Any] = field(default_factory=dict)
    fixed: dict[Any, Any] = field(default_factory=dict)

    def count(self) -> list[int]:
        """How much is still true; it only falls."""
        masks = (self.zero, self.same, self.repeated, self.unused)
        return [int(mask.sum()) for group in masks for mask in group.values()]


def gives_away(problem: Problem, device: int | None, usage: Usage | None = None) -> GivesAway:
    """What the reference gives away: at its true shapes on a GPU, at shrunk ones without.

    Where it cannot be examined, the record says why; a floor stands without it.
    """
    message = problem_message(problem)
    spec = json.dumps(message, sort_keys=True)
    what = json.dumps(message | {"path": "", "name": ""}, sort_keys=True)  # wherever it lies
    place, uuid = ("cpu", None) if device is None else (f"cuda:{device}", devices()[device].uuid)
    command = ["beamsearch.baselines.redundant_work", spec, place]
    path = cache_folder() / "giveaways" / f"{digest_of(device is None, what)}.json"
    try:
        return cached(
            path, GivesAway, lambda: answer_of(command, GivesAway, TIMEOUT_S, uuid, usage=usage)
        )
    except BeamsearchError as error:
        return GivesAway(failed=str(error))


def examine(draw: Callable[[int], Draw], *, true_shapes: bool, seconds: float = inf) -> GivesAway:
    """Draw until QUIET draws in a row teach nothing new, or for so many seconds; `draw` gives the
    n-th, always the same.

    Which inputs and weights matter comes from gradients: an element whose gradient was zero in
    every draw, though it was pushed far up and down meanwhile, is replaced by other values in the
    end, and counts as unused where no output changes by a bit. A tensor for which that fails, or
    which has no gradient, is not named. Raises what the reference raises.
    """
    seen, quiet, draws, before = _Seen(), 0, 0, list[int]()
    until = time.monotonic() + seconds
    while quiet < QUIET and draws < MOST_DRAWS and (not draws or time.monotonic() < until):
        _look(draw(draws), seen, draws)
        draws, count = draws + 1, seen.count()
        quiet, before = (quiet + 1 if count == before else 0), count
    elements = max(1, sum(mask.numel() for mask in seen.zero.values()))
    zeros, constants = (
        sum(int(mask.sum()) for mask in masks.values()) for masks in (seen.zero, seen.same)
    )
    fixed = {name: float(mask.sum()) / mask.numel() for name, mask in seen.fixed.items()}
    return GivesAway(
        zero_outputs=zeros / elements,
        constant_outputs=max(0, constants - zeros) / elements,
        repeated=[
            f"output {output} along dimension {dimension}"
            for (output, dimension), mask in seen.repeated.items()
            if mask
        ],
        unused={
            name: float(mask.sum()) / mask.numel()
            for name, mask in seen.unused.items()
            if mask.any() and _has_no_effect(draw, draws, name, mask)
        },
        # A few equal values are chance: half types have few.
        fixed={name: share for name, share in fixed.items() if share > 0.01},
        draws=draws,
        true_shapes=true_shapes,
    )


def _still(masks: dict[Any, Any], key: Any, mask: Any) -> None:
    masks[key] = masks[key] & mask if key in masks else mask


def _look(one: Draw, seen: _Seen, number: int) -> None:
    """Strike off what is not true in this draw."""
    import torch

    if not number:
        seen.inputs = {name: tensor.detach().clone() for name, tensor in one.tensors.items()}
    for name, tensor in one.tensors.items():
        if number:  # as the problem makes them, before they are pushed
            _still(seen.fixed, name, tensor.detach() == seen.inputs[name])
        if number >= OWN_DRAWS and name in seen.unused:
            # Far above, or below, all others, still different from each other.
            far = (tensor.abs() * 8 + 8) * (1 if number % 2 else -1)
            tensor.copy_(torch.where(seen.unused[name], far, tensor))
    outputs, gradients = _gradients(one, set(seen.unused if number else one.tensors))
    for name, gradient in gradients.items():
        without = gradient == 0 if gradient is not None else torch.ones_like(one.tensors[name]) > 0
        _still(seen.unused, name, without)
    if not gradients:
        seen.unused.clear()
    seen.outputs = seen.outputs or [output.clone() for output in outputs]
    for place, output in enumerate(outputs):
        _still(seen.zero, place, output == 0)
        _still(seen.same, place, output == seen.outputs[place])
        for dimension in range(output.dim()):
            if output.shape[dimension] > 1 and seen.repeated.get((place, dimension), True):
                whole = (output == output.narrow(dimension, 0, 1)).all()
                _still(seen.repeated, (place, dimension), whole)


def _gradients(one: Draw, names: set[str]) -> tuple[list[Any], dict[str, Any]]:
    """The outputs, and the gradients of the tensors of these names that have any."""
    import torch

    wanted = {
        name: tensor.requires_grad_(True)
        for name, tensor in one.tensors.items()
        if tensor.is_floating_point() and name in names
    }
    outputs = one.call()
    ends = [output for output in outputs if output.requires_grad]
    gradients: Any = ()
    if ends and wanted:
        weights = [torch.randn_like(end) for end in ends]
        gradients = torch.autograd.grad(ends, list(wanted.values()), weights, allow_unused=True)
    return [output.detach() for output in outputs], dict(zip(wanted, gradients, strict=False))


def _has_no_effect(draw: Callable[[int], Draw], draws: int, name: str, mask: Any) -> bool:
    """Whether other values in these elements change no output, in two more draws."""
    import torch

    for one in (draw(draws), draw(draws + 1)):
        with torch.no_grad():
            before = [output.clone() for output in one.call()]
            tensor = one.tensors[name]
            tensor.copy_(torch.where(mask, torch.randn_like(tensor) * 100, tensor))
            after = one.call()
        if not all(torch.equal(a, b) for a, b in zip(before, after, strict=True)):
            return False
    return True


def examine_reference(problem: Problem, device: str, seconds: float = inf) -> GivesAway:
    """What a reference gives away, at its true shapes on a GPU. Options as in `examine`. Raises
    ProblemError."""
    import torch

    true_shapes = device != "cpu"
    examined = problem if true_shapes else shrink(problem, SHRUNK_ELEMENTS)

    def draw(number: int) -> Draw:
        """The first inputs are the problem's own, the others standard normal, of either sign."""
        instance = instantiate(examined, device, number, "own" if number < OWN_DRAWS else "normal")
        inputs = zip(instance.arguments.forward, instance.inputs, strict=True)
        tensors: dict[str, Any] = {n: v for n, v in inputs if isinstance(v, torch.Tensor)}
        updated = find_updates(instance)  # outputs, as good as; they have no gradient
        tensors |= {n: v for n, v in instance.arguments.state.items() if n not in updated}
        return Draw(lambda: outputs_of(instance.model(*instance.inputs)), tensors)

    return examine(draw, true_shapes=true_shapes, seconds=seconds)


if __name__ == "__main__":
    problem = read_problem_message(json.loads(sys.argv[1]))
    sys.stdout.write(examine_reference(problem, sys.argv[2]).model_dump_json() + "\n")
