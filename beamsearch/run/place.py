"""Where a run is done: whether it may go on there, and what its record says of it."""

from __future__ import annotations

from beamsearch.errors import UsageError
from beamsearch.records.run import Environment
from beamsearch.records.trace import Trace
from beamsearch.search import MODELLED_NOISE


def check_place(trace: Trace, environment: Environment) -> None:
    """Raise UsageError where a run that was begun cannot go on here: its times come from one kind
    of GPU, however many, or all from the model."""
    if not trace.run_file.is_file():
        return
    there = trace.run_record().environment
    if there.gpu is not None and environment.gpu is None and trace.completed_rounds():
        return  # what needs no GPU can be done here
    if there.target != environment.target or (there.gpu is None) != (environment.gpu is None):
        times = f"measured on {there.gpu}" if there.gpu else f"modelled for {there.target}"
        raise UsageError(
            f"this run's times are {times}, and this machine "
            f"{'has ' + environment.gpu if environment.gpu else 'has no GPU'}; "
            "go on with it on a machine of the same kind, or start a run in another folder"
        )


def with_gpus(there: Environment, here: Environment) -> Environment:
    """What a run was begun with, and every GPU that it was on, those of now too."""
    return there.with_values(gpus=list(dict.fromkeys([*there.gpus, *here.gpus])))


def notes_on(environment: Environment) -> list[str]:
    """What a run cannot measure or verify there."""
    if environment.gpu is not None:
        return []
    return [
        f"No NVIDIA GPU here: times are modelled for {environment.target} and print with ~; "
        "nothing was measured, and kernels were verified in Triton's interpreter on shrunk shapes "
        f"only. A modelled time that is better by less than {MODELLED_NOISE:.0%} is no win."
    ]
