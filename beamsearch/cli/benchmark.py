"""`benchmark [PROBLEM or RUN…]`: every problem's times side by side, each kernel verified first."""

from __future__ import annotations

import json as json_module
import statistics
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from beamsearch.cli.options import DeviceOption, PrecisionOption

if TYPE_CHECKING:
    from beamsearch.gpu.machine import Machine
    from beamsearch.problem.problem import Problem
    from beamsearch.records.measurement import Measurement
    from kernel_profiling.profile import Floor

WAIT = "a minute where torch.compile has tuned it before, up to eight where it has not"
COLUMNS = ("eager", "compile", "max_autotune", "input", "opt")


@dataclass(frozen=True)
class Entry:
    """One line to be: a problem and the kernels to be put beside its baselines."""

    problem: Problem
    kernels: dict[str, Path | None]
    """`input` and `opt`; None where there is none."""


@dataclass(frozen=True)
class Row:
    """One problem measured. A column has a time or says why not."""

    problem: str
    gpu: str
    times: dict[str, Measurement]
    missing: dict[str, str]
    floor: Floor | None

    def over(self, baseline: str) -> float | None:
        """Speedup of the optimized kernel over a baseline."""
        from beamsearch.report.numbers import ratio

        return ratio(self.times.get(baseline), self.times.get("opt"))

    @property
    def sound(self) -> bool:
        """Whether both kernels are there, correct and timed."""
        return "input" in self.times and "opt" in self.times

    def as_json(self) -> dict[str, Any]:
        """The row as it goes into the JSON file; every time with its spread and source."""
        return {
            "problem": self.problem,
            "gpu": self.gpu,
            "times": {name: time.model_dump(mode="json") for name, time in self.times.items()},
            "missing": self.missing,
            "floor": self.floor.model_dump(mode="json") if self.floor else None,
            "floor_ms": self.floor.time_ms if self.floor else None,
            "over": {name: self.over(name) for name in COLUMNS[:-1]},
        }


def benchmark(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROBLEM or RUN]...", help="Default: all with a recorded kernel."),
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write every number there.")
    ] = None,
    precision: PrecisionOption = None,
    device: DeviceOption = None,
) -> None:
    """Time kernels beside their baselines.

    Eager, torch.compile, max-autotune, input and optimized kernel, interleaved. Each kernel is
    verified before it is timed. A problem's optimized kernel is the fastest kept under artifacts/,
    else that of its newest run under runs/. Exit code 1 where a kernel is wrong or missing. Needs
    an NVIDIA GPU.
    """
    from beamsearch.errors import NoGpuError
    from beamsearch.gpu.environment import check_platform
    from beamsearch.gpu.machine import find_machine

    check_platform()
    machine = find_machine(device)
    entries = [find_entry(name, precision) for name in what or recorded()]
    if not machine.measures:
        raise NoGpuError(
            "benchmark needs an NVIDIA GPU: it times kernels and models nothing; without one, "
            "`verify` checks a kernel and `run` models its time"
        )
    rows: list[Row] = []
    for number, entry in enumerate(entries, 1):
        typer.echo(f"{number} of {len(entries)}: {entry.problem.name}, {WAIT}", err=True)
        rows.append(measure(entry, machine))
        typer.echo(line(rows[-1]))
        if json is not None:  # whatever ends this early, what is measured is there
            write(json, rows, machine)
    for text in summary(rows):
        typer.echo(text)
    if not all(row.sound for row in rows):
        raise typer.Exit(1)


def find_entry(name: str, precision: str | None = None) -> Entry:
    """The entry for a run's folder or a problem, by a run's own rule of precision where none is
    given. Raises UsageError where it is neither."""
    from dataclasses import replace

    from beamsearch.problem.problem import find_problem, read_problem
    from beamsearch.records.packed import opened_run

    folder = Path(name)
    if not (folder / "run.json").is_file():
        problem = find_problem(name).with_precision(precision)
        return Entry(problem, {"input": problem.input_kernel, "opt": kept(problem.name)})
    trace = opened_run(folder)
    record = trace.run_record()
    problem = replace(read_problem(trace.problem_file), name=record.problem)
    best = trace.best_kernel_file
    return Entry(
        problem.with_dtype(record.problem_dtype)
        .with_precision(precision or record.settings.precision)
        .with_backward(record.settings.backward),
        {"input": trace.input_file, "opt": best if best.is_file() else None},
    )


def recorded() -> list[str]:
    """Names of the problems that come along with a kernel under artifacts/."""
    from beamsearch.paths import data_folder
    from beamsearch.problem.problem import list_problems

    found = {path.name for path in data_folder("artifacts").glob("*/*") if path.is_dir()}
    return [name for name in list_problems() if name in found]


def kept(problem: str) -> Path | None:
    """The optimized kernel of a problem: the fastest under artifacts/, else of the newest run under
    runs/."""
    from beamsearch.cli.display import WINNER
    from beamsearch.paths import data_folder
    from beamsearch.records.trace import Trace

    confirmed = {
        trace.folder / WINNER: confirmation.winner.time_ms
        for trace in map(Trace, data_folder("artifacts").glob(f"*/{problem}"))
        if (confirmation := trace.run_record().confirmation) is not None
    }
    if confirmed:
        return min(confirmed, key=confirmed.__getitem__)
    runs = [path for path in (Path("runs") / problem).glob(f"*/{WINNER}") if path.is_file()]
    return max(runs, key=lambda path: path.stat().st_mtime, default=None)


def measure(entry: Entry, machine: Machine) -> Row:
    """Verify the kernels, then time everything that may be timed, interleaved in one visit."""
    from beamsearch.api.time import compare
    from beamsearch.baselines.floor import beaten_floor, measure_floor
    from beamsearch.errors import BeamsearchError
    from beamsearch.executor.opened import lane

    problem, floor, gpu = entry.problem, None, "?"
    times: dict[str, Measurement] = {}
    missing: dict[str, str] = {}
    try:
        with lane(problem, machine) as (executor, _):
            gpu = executor.gpu
            floor = measure_floor(problem, machine)
            sources = {
                name: None if path is None else path.read_text()
                for name, path in entry.kernels.items()
            }
            comparison = compare(sources, executor)
            times, missing = comparison.measurements, comparison.failed
            for time in times.values():
                floor = beaten_floor(problem, floor, time, machine)
    except BeamsearchError as error:  # one problem's trouble is a line of its own, not the end
        missing = {name: str(error) for name in COLUMNS}
    return Row(problem.name, gpu, times, missing, floor)


def line(row: Row) -> str:
    """`name  eager=… compile=… max-autotune=… input=… opt=…  floor=… (1.18x)  8.90x`."""
    columns = []
    for name in COLUMNS:
        time = row.times.get(name)
        told = f"{time.time_ms:.3f}" if time else word(row.missing.get(name, "not timed"))
        columns.append(f"{name.replace('_', '-')}={told}")
    told = f"{row.problem}  {' '.join(columns)}"
    optimized = row.times.get("opt")
    if row.floor is not None:
        told += f"  floor={row.floor.time_ms:.3f}"
        if optimized is not None:
            told += f" ({optimized.time_ms / row.floor.time_ms:.2f}x)"
    gain = row.over("compile")
    told += f"  {gain:.2f}x" if gain is not None else ""
    reasons = [
        f"\n    {name.replace('_', '-')}: {why}"
        for name, why in row.missing.items()
        if why != "missing"
    ]
    if row.floor is not None and row.floor.corrected:
        reasons.append(f"\n    floor: {row.floor.corrected}")
    return told + "".join(reasons)


def word(reason: str) -> str:
    """`wrong: the last row differs` as `WRONG`; a missing kernel stays `missing`."""
    head = reason.split(":", 1)[0]
    return head if head == "missing" else head.upper() if head.isidentifier() else "FAILED"


def summary(rows: list[Row]) -> list[str]:
    """Over each baseline: geometric mean, median, how many are faster by more than the noise."""
    from beamsearch.records.baselines import called
    from beamsearch.search.pairs import is_win

    lines = []
    for baseline in ("compile", "max_autotune", "eager", "input"):
        gains = [gain for row in rows if (gain := row.over(baseline)) is not None]
        if not gains:
            continue
        lines.append(
            f"over {called(baseline)}: geometric mean {statistics.geometric_mean(gains):.2f}x, "
            f"median {statistics.median(gains):.2f}x, "
            f"faster on {sum(is_win(1 / gain, 1.0) for gain in gains)} of {len(rows)}"
        )
    return lines


def write(path: Path, rows: list[Row], machine: Machine) -> None:
    """Every number and the machine it was taken on, as JSON."""
    from beamsearch.records.trace import write_text

    content = {
        "environment": machine.environment().model_dump(mode="json"),
        "rows": [row.as_json() for row in rows],
        "summary": summary(rows),
    }
    write_text(path, json_module.dumps(content, indent=2) + "\n")
