"""What the accesses of a call at its true shapes show to be wrong, though no value was computed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from beamsearch.judge.rejection import Log, Rejected
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.estimate.traffic import AccessTrace, LaunchTrace, OutputUse, Stray

COVERED = 0.9
"""An output of which less can be stored is wrong: what is counted is a bound from above, and a few
programs stand for all."""
ERRORS = 4
"""Standard errors by which a bound has to be below that."""
WRAPPED = 1 << 30
"""Bytes outside a tensor from which a 32-bit offset is the likely cause."""
VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}


def check_trace(trace: AccessTrace, least_bytes: int, log: Log) -> None:
    """Nothing outside a tensor, no race, and every output stored to. Raises Rejected.

    Where addresses or conditions follow data, which is not there, nothing is said.
    """
    where = "at the true shapes"
    for launch in trace.launches:
        if launch.follows_data:
            continue
        for stray in launch.strays:
            told = told_stray(launch, stray)
            raise Rejected(Outcome.WRONG, Stage.TRUE_SHAPES, f"{where}: {told}")
        for line in launch.races:
            told = f"line {line} of {launch.name} loads what another program of the launch stores"
            hint = "programs run in any order, at the same time: use an atomic, or two launches"
            raise Rejected(Outcome.WRONG, Stage.TRUE_SHAPES, f"{where}: {told}; {hint}")
    launches = list(one_configuration(trace.launches))
    if trace.failed or any(launch.follows_data or launch.moved is None for launch in launches):
        log.not_checked.append("whether every output is stored to at the true shapes")
        return
    for number, output in enumerate(trace.outputs):
        reason = reason_unwritten(launches, output)
        if reason:
            which = f"output {number}" if len(trace.outputs) > 1 else "the output"
            raise Rejected(Outcome.WRONG, Stage.TRUE_SHAPES, f"{where}: {which} {reason}")
    log.passed(Stage.TRUE_SHAPES, "accesses", "inside its tensors, every output stored to")
    moved = [item for launch in launches for item in launch.moved or []]
    touched = sum(item.bytes for item in moved)
    if any(item.kind == "load" for item in moved) and touched < COVERED * least_bytes:
        share = touched / least_bytes
        message = f"touches at most {share:.2f} of the bytes of all inputs and outputs"
        log.reported(Stage.TRUE_SHAPES, "bytes touched", False, message)


def told_stray(launch: LaunchTrace, stray: Stray) -> str:
    """An access outside every tensor, in words."""
    size = abs(stray.distance_bytes)
    side = "past the end" if stray.distance_bytes > 0 else "before the beginning"
    cause = "; does an offset need more than 32 bits?" if size >= WRAPPED else ""
    return (
        f"line {stray.line} of {launch.name} {VERBS[stray.kind]} {size} bytes {side} of its "
        f"tensor{cause}"
    )


def one_configuration(launches: Iterable[LaunchTrace]) -> Iterator[LaunchTrace]:
    """The launches of one call: of a tuned one, those in its first configuration."""
    first: dict[str, str | None] = {}
    for launch in launches:
        if first.setdefault(launch.name, launch.config) == launch.config:
            yield launch


def reason_unwritten(launches: Iterable[LaunchTrace], output: OutputUse) -> str | None:
    """Why a part of the output must be left unwritten, or none."""
    if output.filled or not output.bytes:
        return None
    stored = [
        item
        for launch in launches
        for item in launch.moved or []
        if item.storage == output.storage and item.kind != "load"
    ]
    if not stored:
        return "is never stored to"
    most = sum(item.bytes for item in stored) + ERRORS * sum(item.error_bytes for item in stored)
    if most >= COVERED * output.bytes:
        return None
    share = sum(item.bytes for item in stored) / output.bytes
    return f"is left unwritten in part: {share:.2f} of its bytes are stored"
