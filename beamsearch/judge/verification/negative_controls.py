"""What an input set can tell: where a surely wrong output would pass, it proves nothing; and how
far an output moves when its inputs are rounded otherwise, more than any kernel can help.

A softmax that all but picks one key, or a difference of nearly equal sums, turns the last bit of an
input into many digits of the output. There an honest kernel is outside every fixed tolerance, as
PyTorch's own result is. What is measured here is the reference's: in wide precision on inputs and
parameters that are rounded otherwise, and in the problem's own dtype. Only for an output that is
outside the tolerance; what is within it costs nothing.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.verification.oracle import (
    Change,
    Expected,
    expected_of,
    oracle_dtype,
    run_oracle,
    run_reference,
)
from beamsearch.judge.verification.tolerance import (
    MOVED_SHARE,
    PIECE,
    Difference,
    errors,
    mean_and_spread,
    pieces,
)
from beamsearch.problem.input_values import DISTRIBUTIONS, NOT_A_NUMBER, Distribution
from beamsearch.problem.instance import Instance, instantiate
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink

PARTS = 100
"""An output is cut into so many parts, each of which may be the one that a kernel leaves out."""
UNNOTICED = 10
"""One part in ten may be indistinguishable, such as one element near zero: what is always left out
is then noticed in five input sets but for once in 100 000."""
ROUNDINGS = {"float16": 1, "bfloat16": 1}
"""Half units in the last place by which an input is smaller, or not; 16 where none is given. One
rounding of half types is far above what sums in float32 lose. In float32 a sum of d terms, one by
one, errs by sqrt(d) / 2 times what its terms' own rounding does: by 16 times for d = 1024. That is
still 2^-20 of a value, and TF32 loses 2^-11."""
TF32_HALF_UNIT = 2.0**-11
"""Of TF32's ten bits, where products may be in it."""
PAIRS = 8
"""Most pairs of roundings that are tried; what one rounds, its twin leaves. Each pair leaves less
than a fifth of the elements that rounding explains unexplained: of ten thousand, none."""
WIDE_PAIRS, WIDE = 4, 2
"""And, in TF32, of those in which inputs are rounded by twice what an element may move, where few
elements are left. Of 264 million twelve moved in none of 16 roundings by a fifth of what TF32 made
of them; and the steep middle of a sigmoid moves by more than five times what a fifth of it does."""
GAIN = 0.5
"""Another pair is tried where the last one left at most half as many elements wrong. What is wrong
for another reason than rounding stays wrong, and costs few runs of the reference."""
FEW, FEWEST = 2e-3, 8
"""Share of the elements that may be a row or two which no pair has met yet: all pairs are tried. So
many are few in any output."""


class CannotTell(Exception):
    """A wrong output would pass on this input set."""


@functools.lru_cache(maxsize=64)
def defined_distributions(problem: Problem) -> tuple[Distribution, ...]:
    """Those that the operation takes at whatever sizes, tried on the CPU at small shapes from a
    public seed.

    There a reference that refuses values, such as probabilities above one, raises; on a GPU it
    takes the process with it. A problem that cannot be shrunk gets its own and normal inputs.
    """
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
    sums: float = 0.0,
) -> list[Expected]:
    """The oracle and what errors are measured by; `sums` as in `Scale`. Raises CannotTell,
    ProblemError."""
    oracles = run_oracle(instance, instance.inputs, wide)
    others = run_oracle(instance, other_inputs, wide)
    expected, own = expected_of(instance, oracles, others, sums)
    check_defined(distribution, expected, own)
    del own
    if distribution != NOT_A_NUMBER:  # it may well be all that comes out
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
    if distribution in ("own", NOT_A_NUMBER):
        return
    infinite = distribution in ("infinite", "minus_infinite")
    for item, value in zip(expected, own, strict=True):
        if not value.is_floating_point():
            continue
        for result in (item.oracle.to(item.dtype), value):
            if bool((result.isnan() if infinite else ~result.isfinite()).any()):
                kind = "number" if infinite else "finite number"
                raise CannotTell(f"the reference makes no {kind} of them")


def check_controls(expected: Expected, other: torch.Tensor) -> None:
    """Zeros, a constant, the output of other inputs, and an output with a small part missing all
    fail against the oracle; `other` is the oracle's output for other inputs. Raises CannotTell."""
    oracle, dtype = expected.oracle, expected.dtype
    zero, mean = oracle.new_zeros((), dtype=dtype), mean_and_spread(oracle)[0]
    zeros, stale = zero.expand(oracle.shape), other.to(dtype)
    controls = {"an all-zero output": zeros, "the output of other inputs": stale}
    if oracle.numel() > 1:
        controls["a constant output"] = torch.full_like(zero, mean).expand(oracle.shape)
    for name, wrong in controls.items():
        if would_pass(wrong, expected):
            raise CannotTell(f"{name} would pass")
    for name, replaced in (("zero", zeros), ("stale", stale)):
        if oracle.numel() > 1 and hides_a_part(replaced, expected):
            raise CannotTell(f"an output with a small part {name} would pass")


def would_pass(wrong: torch.Tensor, expected: Expected) -> bool:
    """Whether this output would be taken for right; stops at the first piece that shows it not."""
    for got, want, moved in pieces(wrong, expected.oracle, expected.moved):
        if bool(_noticed(got, want, expected, moved).any()):
            return False
    return expected.difference(wrong).passed


def hides_a_part(replaced: torch.Tensor, expected: Expected) -> bool:
    """Whether parts of the output could be replaced by these values without being noticed.

    A part that is the same after replacement, such as zeros where zeros belong, does not count.
    """
    size = -(-expected.oracle.numel() // PARTS)
    changed = noticed = 0
    whole = size * max(1, PIECE // size)
    for got, want, moved in pieces(replaced, expected.oracle, expected.moved, size=whole):
        changed += _parts(got != want.to(expected.dtype), size)
        noticed += _parts(_noticed(got, want, expected, moved), size)
    return changed - noticed > max(1, changed // UNNOTICED)


def _parts(mask: torch.Tensor, size: int) -> int:
    """How many parts of this size hold at least one."""
    short = -mask.numel() % size
    return int(torch.nn.functional.pad(mask, (0, short)).view(-1, size).any(1).sum())


def _noticed(
    got: torch.Tensor, want: torch.Tensor, expected: Expected, moved: torch.Tensor | None
) -> torch.Tensor:
    """Where an element would be judged wrong."""
    error, allowed, same = errors(got, want, expected.scale, moved)
    return ~same & ~(error <= allowed)


@dataclass(eq=False)
class Sway:
    """How far each output of one input set moves, as far as it was measured so far: it depends on
    the set alone, not on who was judged. Thread-safe."""

    make: Callable[[int], Instance]
    """The set's values from its seed; from another one, those of the controls."""
    seed: int
    wide: torch.dtype
    dtype: str
    """The problem's."""
    _moved: list[torch.Tensor] = field(default_factory=list)
    _pairs: int = 0
    _proven: set[tuple[int, int]] = field(default_factory=set)
    """Outputs on which surely wrong ones still fail, with the pairs that were measured then."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def reconsider(
        self, plain: Difference, result: torch.Tensor, index: int, every: list[Expected]
    ) -> Difference:
        """The difference of output `index`, where `plain` is outside the tolerance.

        Whole numbers, and what is infinite or not a number, are wrong however inputs are rounded.
        Raises CannotTell where what excuses this output would excuse a surely wrong one too, and
        OutOfMemoryError.
        """
        if plain.not_finite or not result.is_floating_point():
            return plain
        with self._lock:
            instance = self.make(self.seed)
            left, difference = plain.wrong, plain
            most = PAIRS + WIDE_PAIRS * any(item.scale.tf32 for item in every)
            for pairs in range(1, most + 1):
                if self._pairs < pairs:
                    self._measure(instance, every)
                moved = self._moved[index]
                if moved.dim() and moved.shape[-1] > 1:
                    # At least the median of its row, so that no element is strict by luck.
                    moved = moved.maximum(moved.median(-1, keepdim=True).values)
                expected = replace(every[index], moved=moved)
                del moved
                difference = expected.difference(result)
                if difference.passed:
                    if (index, self._pairs) not in self._proven:
                        others = run_oracle(instance, self.make(self.seed + 1).inputs, self.wide)
                        check_controls(expected, others[index])
                        self._proven.add((index, self._pairs))
                    return replace(difference, excused=plain.wrong)
                few = 0 < difference.wrong <= max(FEWEST, FEW * difference.elements)
                if not few and (pairs >= PAIRS or difference.wrong > GAIN * left):
                    break
                left = difference.wrong
                del expected  # outputs may be as large as half of what memory is left
            return difference

    def _measure(self, instance: Instance, every: list[Expected]) -> None:
        """One more pair of roundings; with the first, the reference in the problem's own dtype."""
        if not self._moved:
            self._moved = [torch.zeros_like(e.oracle, dtype=torch.bfloat16) for e in every]
            self._stretch(run_reference(instance), every, 1)
        tf32, dtype = any(item.scale.tf32 for item in every), getattr(torch, self.dtype)
        amount, times = ROUNDINGS.get(self.dtype, 16) * torch.finfo(dtype).eps / 2, 1
        amount = max(amount, *(item.scale.sums for item in every))
        if tf32:
            amount = max(amount, TF32_HALF_UNIT)
        if self._pairs >= PAIRS:
            times = MOVED_SHARE[tf32]
            amount *= WIDE * times
        for twin in (False, True):
            change = rounded_otherwise(self.seed + self._pairs, amount, twin)
            self._stretch(run_oracle(instance, instance.inputs, self.wide, change), every, times)
        self._pairs += 1

    def _stretch(self, outputs: list[torch.Tensor], every: list[Expected], times: int) -> None:
        """Take these for outputs that rounding moved `times` as far as it does. In pieces: one that
        is whole in memory beside outputs, oracles and inputs may be one too many."""
        for moved, output, expected in zip(self._moved, outputs, every, strict=True):
            for here, got, want in pieces(moved, output, expected.oracle):
                apart = torch.nan_to_num((got.to(want.dtype) - want).abs_(), 0.0, 0.0, 0.0)
                here.copy_(torch.maximum(here, (apart / times).to(here.dtype)))


def rounded_otherwise(seed: int, amount: float, twin: bool) -> Change:
    """Half of the elements smaller by this share; the twin, the other half. Smaller, so that a
    probability of one stays one that a loss takes."""

    def change(number: int, tensor: torch.Tensor) -> torch.Tensor:
        generator = torch.Generator(tensor.device).manual_seed((seed << 8) + number & (1 << 63) - 1)
        chosen = torch.empty(tensor.shape, dtype=torch.bool, device=tensor.device)
        chosen.bernoulli_(0.5, generator=generator)
        return torch.where(chosen ^ twin, tensor * (1 - amount), tensor)

    return change
