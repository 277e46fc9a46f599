"""How much of a GPU's memory a problem takes, before anything is in it."""

from __future__ import annotations

from dataclasses import dataclass

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem
from beamsearch.problem.scale import at_scale

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


def memory_need(inputs: int, weights: int, outputs: int, dtype_bytes: int) -> MemoryNeed:
    """What a problem takes whose inputs, weights and outputs are so many bytes, in a dtype of so
    many bytes an element.

    The oracle is in float32, for problems of float64 in float64 (for others too where much is free,
    which is not counted). It is computed on widened copies of the weights, and of inputs that are
    not as wide already.
    """
    oracle_bytes = max(4, dtype_bytes)
    oracle = outputs * oracle_bytes // dtype_bytes
    wide_inputs = inputs * oracle_bytes // dtype_bytes if oracle_bytes > dtype_bytes else 0
    wide_weights = weights * oracle_bytes // dtype_bytes
    return MemoryNeed(
        inputs=inputs,
        weights=weights,
        outputs=outputs,
        oracle=2 * oracle + inputs + wide_inputs + wide_weights,
        second_set=inputs + weights + oracle,
    )


def needed(problem: Problem) -> MemoryNeed:
    """The same of a problem, by its shapes alone. Raises ProblemError where it does not run so."""
    import torch

    from beamsearch.problem.least_work import least_work

    work, instance = least_work(problem), instantiate(problem, "meta")
    weights = sum(tensor.nbytes for tensor in instance.arguments.state.values())
    inputs = work.bytes_read - weights
    dtype: torch.dtype = getattr(torch, problem.dtype)
    return memory_need(inputs, weights, work.bytes_written, dtype.itemsize)


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
