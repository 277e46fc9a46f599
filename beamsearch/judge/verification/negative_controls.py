"""Outputs that are surely wrong: an input set on which one of them would pass proves nothing."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from beamsearch.errors import ProblemError
from beamsearch.judge.verification.oracle import Expected, expected_of, oracle_dtype, run_oracle
from beamsearch.judge.verification.tolerance import PIECE, compare, errors, mean_and_spread, pieces
from beamsearch.problem.input_values import DISTRIBUTIONS, NOT_A_NUMBER, Distribution
from beamsearch.problem.instance import Instance, instantiate
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink

if TYPE_CHECKING:
    import torch

PARTS = 100
"""An output is cut into so many parts, each of which may be the one that a kernel leaves out."""
UNNOTICED = 10
"""One part in ten may be indistinguishable, such as one element near zero: what is always left out
is then noticed in five input sets but for once in 100 000."""


class CannotTell(Exception):
    """A wrong output would pass on this input set."""


def defined_distributions(problem: Problem) -> tuple[Distribution, ...]:
    """Those that the operation takes, tried on the CPU at small shapes from a public seed.

    There a reference that refuses values, such as probabilities above one, raises; on a GPU it
    takes the process with it. A problem that cannot be shrunk gets its own and normal inputs.
    """
    return _defined(replace(problem, sizes={}))  # the same at whatever sizes, so tried once


@functools.lru_cache(maxsize=64)
def _defined(problem: Problem) -> tuple[Distribution, ...]:
    try:
        small = shrink(problem)
    except ProblemError:
        return ("own", "normal")
    found: list[Distribution] = ["own"]
    for distribution in (*DISTRIBUTIONS[1:], NOT_A_NUMBER):
        with suppress(CannotTell, ProblemError):
            instance = instantiate(small, "cpu", 0, distribution)
            oracles = run_oracle(instance, instance.inputs, oracle_dtype(small, "cpu"))
            check_defined(distribution, *expected_of(instance, oracles, oracles))
            found.append(distribution)
    return tuple(found)


def expect(
    instance: Instance,
    other_inputs: tuple[Any, ...],
    wide: torch.dtype,
    distribution: Distribution = "own",
) -> list[Expected]:
    """The oracle and what errors are measured by. Raises CannotTell, ProblemError."""
    oracles = run_oracle(instance, instance.inputs, wide)
    others = run_oracle(instance, other_inputs, wide)
    expected, own = expected_of(instance, oracles, others)
    check_defined(distribution, expected, own)
    del own
    if distribution == NOT_A_NUMBER:  # it may well be all that comes out
        return expected
    returned = len(expected) - len(instance.updates)
    for item, other in zip(expected[:returned], others, strict=False):
        check_controls(item, other)
    return expected


def check_defined(
    distribution: Distribution, expected: Sequence[Expected], own: Sequence[torch.Tensor]
) -> None:
    """The operation gives proper numbers for these inputs, in its own dtype too.

    Nothing is proved by an overflow or by not-a-number, on which honest kernels may differ. The
    problem's own inputs are always proper. Raises CannotTell.
    """
    import torch

    if distribution in ("own", NOT_A_NUMBER):
        return
    infinite = distribution in ("infinite", "minus_infinite")
    for item, value in zip(expected, own, strict=True):
        if not value.is_floating_point():
            continue
        for result in (item.oracle.to(item.dtype), value):
            if infinite and bool(torch.isnan(result).any()):
                raise CannotTell("the reference makes no number of them")
            if not infinite and not bool(torch.isfinite(result).all()):
                raise CannotTell("the reference makes no finite number of them")


def check_controls(expected: Expected, other: torch.Tensor) -> None:
    """Zeros, a constant, the output of other inputs, and an output with a small part missing all
    fail against the oracle; `other` is the oracle's output for other inputs. Raises CannotTell."""
    import torch

    oracle, dtype = expected.oracle, expected.dtype
    mean, _ = mean_and_spread(oracle)
    zeros = torch.zeros((), dtype=dtype, device=oracle.device).expand(oracle.shape)
    controls: dict[str, Callable[[], torch.Tensor]] = {
        "an all-zero output": lambda: zeros,
        "the output of other inputs": lambda: other.to(dtype),
    }
    if oracle.numel() > 1:
        controls["a constant output"] = lambda: torch.full_like(oracle, mean, dtype=dtype)
    for name, make in controls.items():
        if would_pass(make(), expected):
            raise CannotTell(f"{name} would pass")
    if oracle.numel() > 1:
        for name, replaced in (("zero", zeros), ("stale", other.to(dtype))):
            if hides_a_part(replaced, expected):
                raise CannotTell(f"an output with a small part {name} would pass")


def would_pass(wrong: torch.Tensor, expected: Expected) -> bool:
    """Whether this output would be taken for right; stops at the first piece that shows it not."""
    import torch

    oracle = expected.oracle
    for got, want, moved in zip(
        torch.split(_flat(wrong), PIECE),
        torch.split(oracle.flatten(), PIECE),
        pieces(expected.moved),
        strict=False,
    ):
        if bool(_noticed(got, want, expected, moved).any()):
            return False
    return compare(wrong, oracle, expected.scale, expected.moved).passed


def hides_a_part(replaced: torch.Tensor, expected: Expected) -> bool:
    """Whether parts of the output could be replaced by these values without being noticed.

    A part that is the same after replacement, such as zeros where zeros belong, does not count.
    """
    import torch

    oracle = expected.oracle.flatten()
    size = -(-oracle.numel() // PARTS)
    whole = size * max(1, PIECE // size)
    changed = noticed = torch.zeros((), dtype=torch.int64, device=oracle.device)
    for got, want, moved in zip(
        torch.split(_flat(replaced), whole),
        torch.split(oracle, whole),
        pieces(expected.moved, whole),
        strict=False,
    ):
        changed = changed + _parts(got != want.to(expected.dtype), size)
        noticed = noticed + _parts(_noticed(got, want, expected, moved), size)
    return int(changed - noticed) > max(1, int(changed) // UNNOTICED)


def _parts(mask: torch.Tensor, size: int) -> torch.Tensor:
    """How many parts of this size hold at least one."""
    import torch

    short = -mask.numel() % size
    return torch.nn.functional.pad(mask, (0, short)).view(-1, size).any(1).sum()


def _noticed(
    got: torch.Tensor, want: torch.Tensor, expected: Expected, moved: torch.Tensor | None
) -> torch.Tensor:
    """Where an element would be judged wrong."""
    error, allowed, same = errors(got, want, expected.scale, moved)
    return ~same & ~(error <= allowed)


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """One dimension; an expanded number stays one number."""
    return (
        tensor.as_strided((tensor.numel(),), (0,))
        if not any(tensor.stride())
        else (tensor.flatten())
    )
