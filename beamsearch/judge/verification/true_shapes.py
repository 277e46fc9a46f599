"""What the accesses of a call at its true shapes show to be wrong, though no value was computed."""

from collections.abc import Iterator

from beamsearch.judge.rejection import Log, Rejected
from beamsearch.records.verdict import Outcome, Stage
from kernel_profiling.estimate.traffic import AccessTrace, LaunchTrace, Moved, OutputUse

COVERED = 0.9
"""An output of which less can be stored is wrong: what is counted is a bound from above, and a few
programs stand for all."""
ERRORS = 4
"""Standard errors by which a bound has to be below that, where no program has to store more than
any that was looked at."""
WRAPPED = 1 << 30
"""Bytes outside a tensor from which a 32-bit offset is the likely cause."""
VERBS = {"load": "reads", "store": "writes", "atomic": "updates"}


def check_trace(trace: AccessTrace, least_bytes: int, log: Log) -> None:
    """Nothing outside a tensor, no race, and every output stored to. Raises Rejected.

    Where addresses or conditions follow data, which is not there, nothing is said.
    """
    stage = Stage.TRUE_SHAPES
    faults = [fault for launch in trace.launches for fault in _faults(launch)]
    # Of a tuned kernel, the launches of one call are those in its first configuration.
    first: dict[str, str | None] = {}
    launches = [t for t in trace.launches if first.setdefault(t.name, t.config) == t.config]
    moved = [item for launch in launches for item in launch.moved or []]
    unknown = trace.failed or any(t.follows_data or t.moved is None for t in launches)
    for number, output in enumerate([] if unknown else trace.outputs):
        which = f"output {number}" if len(trace.outputs) > 1 else "the output"
        faults += [f"{which} {reason}" for reason in _unwritten(moved, output)]
    if faults:
        raise Rejected(Outcome.WRONG, stage, f"at the true shapes: {faults[0]}")
    if unknown:
        log.not_checked.append("whether every output is stored to at the true shapes")
        return
    log.passed(stage, "accesses", "inside its tensors, every output stored to")
    touched = sum(item.bytes for item in moved)
    if any(item.kind == "load" for item in moved) and touched < COVERED * least_bytes:
        share = touched / least_bytes
        message = f"touches at most {share:.2f} of the bytes of all inputs and outputs"
        log.reported(stage, "bytes touched", False, message)


def _faults(launch: LaunchTrace) -> Iterator[str]:
    if launch.follows_data:
        return
    for stray in launch.strays:
        size = abs(stray.distance_bytes)
        side = "past the end" if stray.distance_bytes > 0 else "before the beginning"
        cause = "; does an offset need more than 32 bits?" if size >= WRAPPED else ""
        what = f"{VERBS[stray.kind]} {size} bytes {side} of its tensor{cause}"
        yield f"line {stray.line} of {launch.name} {what}"
    for line in launch.races:
        told = f"line {line} of {launch.name} loads what another program of the launch stores"
        hint = "programs run in any order, at the same time: use an atomic, or two launches"
        yield f"{told}; {hint}"


def _unwritten(moved: list[Moved], output: OutputUse) -> Iterator[str]:
    """Why a part of the output must be left unwritten."""
    if output.filled or not output.bytes:
        return
    stored = [item for item in moved if item.storage == output.storage and item.kind != "load"]
    bounds = [min(item.bytes + ERRORS * item.error_bytes, item.most_bytes) for item in stored]
    if not stored:
        yield "is never stored to"
    elif sum(bounds) < COVERED * output.bytes:
        share = sum(item.bytes for item in stored) / output.bytes
        yield f"is left unwritten in part: {share:.2f} of its bytes are stored"
