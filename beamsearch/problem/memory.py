"""How much of a GPU's memory a problem takes, before anything is in it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem
from beamsearch.problem.scale import at_scale
from kernel_profiling.errors import one_line

HALVINGS = 8
"""How often a scale is halved in search of one that fits."""


@dataclass(frozen=True)
class MemoryNeed:
    """Bytes that are on the GPU at once while the judge makes its second set of inputs: a bound
    from below. What the reference holds between its steps comes on top."""

    inputs: int
    weights: int
    outputs: int
    """What a kernel writes."""
    oracle: int
    """The oracle of the first set, what the second one's is computed on, and that of other inputs,
    beside which it is looked at."""
    second_set: int
    """Inputs, weights and oracle."""

    @property
    def total(self) -> int:
        """All together."""
        return self.inputs + self.weights + self.outputs + self.oracle + self.second_set

    def __str__(self) -> str:
        """In words, in GB."""
        parts = {
            "inputs": self.inputs,
            "weights": self.weights,
            "outputs": self.outputs,
            "the oracle": self.oracle,
            "the judge's second set": self.second_set,
        }
        told = ", ".join(f"{name} {size / 1e9:.2f}" for name, size in parts.items())
        return f"{self.total / 1e9:.2f} GB ({told})"


class Stored(NamedTuple):
    """Bytes of some tensors as they are, and as the oracle has them."""

    own: int
    wide: int


def memory_need(inputs: Stored, weights: Stored, outputs: Stored) -> MemoryNeed:
    """What a problem takes whose tensors are so many bytes. Of the inputs, `wide` are the copies
    alone that the oracle makes; of weights, the model's copy; of outputs, the oracle's."""
    return MemoryNeed(
        inputs=inputs.own,
        weights=weights.own,
        outputs=outputs.own,
        oracle=2 * outputs.wide + inputs.own + inputs.wide + weights.wide,
        second_set=inputs.own + weights.own + outputs.wide,
    )


def needed(problem: Problem) -> MemoryNeed:
    """The same of a problem, by its shapes alone. Raises ProblemError where it does not run so.

    The oracle is in float32, for problems of float64 in float64 (for others too where much is free,
    which is not counted).
    """
    import torch

    from beamsearch.problem.dispatch_modes import ShapesOfRecurrence

    wide = torch.float64 if problem.dtype == "float64" else torch.float32

    def stored(values: Iterable[Any], *, copied: bool) -> Stored:
        tensors = [value for value in values if isinstance(value, torch.Tensor)]
        as_oracle = [t.to(wide) if t.is_floating_point() else t for t in tensors]
        pairs = zip(tensors, as_oracle, strict=True)
        counted = [new.nbytes for old, new in pairs if copied or new is not old]
        return Stored(sum(tensor.nbytes for tensor in tensors), sum(counted))

    instance = instantiate(problem, "meta")
    with ShapesOfRecurrence():  # type: ignore[no-untyped-call]
        try:
            output = instance.reference()
        except (RuntimeError, NotImplementedError) as error:
            told = one_line(str(error))
            raise ProblemError(f"{problem.name} does not run on shapes alone: {told}") from error
    outputs = outputs_of(output)
    return memory_need(
        stored(instance.inputs, copied=False),
        stored(instance.arguments.state.values(), copied=True),
        stored(outputs, copied=True),
    )


def check_fits(problem: Problem, free_bytes: int) -> None:
    """Raise ProblemError where a problem takes more than is free on a GPU, with a scale that does
    not."""
    need = needed(problem)
    if need.total <= free_bytes:
        return
    fits = _fitting(problem, free_bytes)
    then = f"--scale {fits:g} fits" if fits else "no --scale makes it fit"
    raise ProblemError(
        f"{problem.name} needs {need} of GPU memory, and {free_bytes / 1e9:.2f} GB are free: {then}"
    )


def _fitting(problem: Problem, free_bytes: int) -> float | None:
    """The largest power of two that fits; none where none does."""
    for factor in (0.5**halvings for halvings in range(1, HALVINGS + 1)):
        try:
            if needed(at_scale(problem, factor)).total <= free_bytes:
                return factor
        except ProblemError:
            return None
    return None
