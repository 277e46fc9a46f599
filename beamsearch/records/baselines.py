"""What a kernel is held against: which times there are, and what they are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from beamsearch.records.job import Baseline, Comparison, KernelTime, Subject
from beamsearch.records.measurement import Measurement
from beamsearch.records.record import Record

BASELINES: tuple[Baseline, ...] = get_args(Baseline)
"""The reference as PyTorch runs it, in the order in which it is shown."""
_CALLED: Mapping[str, str] = {"compile": "torch.compile", "max_autotune": "max-autotune"}


def called(name: str) -> str:
    """A baseline's name as people write it; any other name as it is."""
    return _CALLED.get(name, name)


def baseline_subjects(*, quick: bool = False) -> list[Subject]:
    """Those that are to be timed: all; for a quick look without the one that tunes itself."""
    return [
        Subject(name=name, kind=name) for name in BASELINES if name != "max_autotune" or not quick
    ]


class Baselines(Record):
    """Times of the reference, each absent where it could not be measured, with the reason."""

    eager: Measurement | None = None
    compile: Measurement | None = None
    """`torch.compile`, default mode."""
    max_autotune: Measurement | None = None
    """`torch.compile(mode="max-autotune-no-cudagraphs")`."""
    anchor: Measurement | None = None
    """The input kernel in the same visit."""
    rescaled_from: str | None = None
    """Visit in which they were measured, where they were kept from an earlier run; the times here
    are scaled to the visit of the anchor."""
    absent: dict[str, str] = {}
    kernels: dict[str, list[KernelTime]] = {}
    """Baseline -> the GPU kernels of one call, the longest first; empty where not looked at."""

    @classmethod
    def of(cls, comparison: Comparison, anchor: str) -> Baselines:
        """Those that were timed in a comparison; `anchor` is the input kernel's name there."""
        measured = comparison.measurements
        values = {name: measured.get(name) for name in BASELINES}
        absent = {n: "left out (--quick)" for n in BASELINES if n not in measured}
        given = {"anchor": measured.get(anchor), "absent": absent | comparison.failed}
        return cls.model_validate(values | given | {"kernels": comparison.kernels})
