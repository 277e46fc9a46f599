"""`optimize`: a run from start to finish."""

from __future__ import annotations

import datetime
import threading
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from beamsearch.api.events import OnEvent, passing_on
from beamsearch.api.kernel import Kernel, is_source
from beamsearch.api.problem import GivenProblem, as_problem
from beamsearch.api.run import Run
from beamsearch.errors import UsageError
from beamsearch.settings import Settings, read_settings

if TYPE_CHECKING:
    from beamsearch.problem.problem import Problem
    from beamsearch.records.run import RunRecord
    from beamsearch.run.observer import Observer


def optimize(
    problem: GivenProblem,
    kernel: Kernel | None = None,
    *,
    on_event: OnEvent | None = None,
    output: str | Path | None = None,
    **settings: Any,
) -> Run:
    """Make a problem's kernel fast, and give the run, which is finished.

    `kernel`: the first one, a file or its source; the problem's own where there is none.
    `on_event` is called with each event of the run (`beamsearch.records.event`), one at a time;
    what it raises stops the run and is raised here. `output`: the run's folder, by default a
    new one under runs/; one that holds the same run goes on. `settings`: those of
    `beamsearch.settings`, by name. Raises UsageError, EndpointError where nobody can be asked,
    and Stopped after Ctrl-C: the same call with the same `output` goes on.
    """
    from beamsearch.gpu.environment import check_platform

    check_platform()
    asked = read_settings(None, settings)
    first = kernel if kernel is None or is_source(kernel) else Path(kernel)
    check_asked(asked, first, None if output is None else Path(output))
    begin_server(asked)
    found = as_problem(problem)
    folder = fresh_folder(found.name) if output is None else Path(output)
    with passing_on(on_event) as observer:
        search(found, asked, folder, kernel=first, observer=observer)
    return Run(folder)


def check_asked(settings: Settings, kernel: Kernel | None, output: Path | None) -> None:
    """Look at what a run was asked for with, before anything is imported that takes seconds.

    Raises UsageError, KernelError for a first kernel that cannot be one, and EndpointError where
    nobody can be asked.
    """
    from beamsearch.problem.kernel import read_kernel
    from beamsearch.proposer.factory import check_thinker

    for earlier in settings.learn_from:
        if not (Path(earlier) / "run.json").is_file():
            raise UsageError(f"--learn-from {earlier}: no run.json there; give a run's folder")
    if output is not None and output.exists() and not output.is_dir():
        raise UsageError(f"--output {output} is a file; give a folder, new or of an earlier run")
    if isinstance(kernel, Path):
        read_kernel(kernel)
    if output is None or not (output / "run.json").is_file():  # who goes on is in a run's record
        check_thinker(settings)


def begin_server(settings: Settings) -> None:
    """Begin the process that candidates are forked from, before this one has imported what a run
    needs: both take seconds. Not where lanes of their own have such processes. Raises UsageError
    where the GPU's driver does not answer."""
    from beamsearch.gpu.environment import devices
    from beamsearch.judge.sandbox.server_process import stand_by

    if settings.ray is None and settings.gpus is None and not settings.device:
        stand_by(interpreter=not devices())


def search(
    problem: Problem,
    settings: Settings,
    folder: Path,
    *,
    kernel: Kernel | None,
    observer: Observer,
    scale: float | None = None,
) -> RunRecord:
    """A run in a folder, from the start or from what is there; a new one after a look at whether
    the problem means something. `scale`: what its sizes were multiplied by."""
    from beamsearch.gpu.machine import find_machine
    from beamsearch.run.place import begin_lanes
    from beamsearch.suite.audits import flaws_of

    if settings.ray is None:
        begin_lanes(settings.device, settings.gpus)
    begun = (folder / "run.json").is_file()
    # What the run needs is imported beside the audit, which is done by another process.
    importing = threading.Thread(target=import_module, args=("beamsearch.run.run",))
    importing.start()
    gpu = find_machine(None, settings.target).gpu
    flaws = [] if begun else flaws_of(problem.path, gpu, scale)
    importing.join()
    from beamsearch.run import run as runner

    return runner.run(problem, settings, folder, kernel=kernel, observer=observer, flaws=flaws)


def fresh_folder(problem: str) -> Path:
    """`runs/<problem>/<date-time>`, not there yet."""
    now = datetime.datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    folder = Path("runs") / problem / now
    number = 1
    while folder.exists():
        number += 1
        folder = folder.with_name(f"{now}_{number}")
    return folder
