"""`time`: kernels beside the input kernel and PyTorch, interleaved in one visit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from beamsearch.api.kernel import Kernel, is_source, subject_of
from beamsearch.api.page import html
from beamsearch.api.problem import GivenProblem, as_problem
from beamsearch.errors import NoGpuError, UsageError
from beamsearch.records.job import Comparison
from beamsearch.records.record import Record
from beamsearch.settings import Precision
from kernel_profiling.profile import Floor

if TYPE_CHECKING:
    from beamsearch.executor.executor import Executor
    from beamsearch.records.measurement import Measurement
    from beamsearch.search.pairs import Ratio

TAKEN = ("input", "eager", "compile", "max_autotune", "max-autotune")
"""What stands beside the kernels, under these names."""

HTML = """
<p>{{ answer.problem }} on {{ answer.gpu }}, floor {{ "%.4g"|format(answer.floor.time_ms) }} ms
{{ answer.floor.corrected }}</p>
<table><tr><th></th><th>ms</th><th>20% to 80%</th><th>x the floor</th>
<th>x the time of {{ answer.subject }} [95%]</th></tr>
{% for name, taken, over in rows %}
<tr><td>{{ name }}</td><td>{{ "%.4g"|format(taken.time_ms) }}</td>
<td>{{ "%.4g to %.4g"|format(taken.p20_ms, taken.p80_ms) }}</td>
<td>{{ "%.2f"|format(taken.time_ms / answer.floor.time_ms) }}</td>
<td>{% if over %}{{ "%.3f [%.3f, %.3f]: "|format(over.median, over.low, over.high) }}
{{ "a tie" if over.verdict == "tie" else over.verdict }}{% endif %}</td></tr>
{% endfor %}
{% for name, why in answer.failed.items() %}
<tr><td>{{ name }}</td><td colspan="4" style="text-align: left">{{ why }}</td></tr>
{% endfor %}
</table>
"""


class Timing(Record):
    """Kernels and PyTorch, timed in turns in one stay on one GPU. `print` shows the table."""

    problem: str
    gpu: str
    subject: str
    """The first kernel: what all ratios are over."""
    kernels: list[str]
    """Names of all kernels."""
    floor: Floor
    comparison: Comparison
    scaled: str

    @property
    def measurements(self) -> dict[str, Measurement]:
        """Times by name: the kernels, `input`, `eager`, `compile`, `max_autotune`."""
        return self.comparison.measurements

    @property
    def failed(self) -> dict[str, str]:
        """Why each of the others has no time."""
        return self.comparison.failed

    @property
    def ratios(self) -> dict[str, Ratio]:
        """Each other's time over the first kernel's, from the turns that they shared."""
        return ratios(self.subject, self.comparison)

    def __str__(self) -> str:
        return "\n".join(table(self.problem, self.gpu, self.subject, self.comparison, self.floor))

    def _repr_html_(self) -> str:
        over = self.ratios
        rows = [(shown(n), taken, over.get(n)) for n, taken in self.measurements.items()]
        return html(HTML, answer=self, rows=rows)


def time(
    problem: GivenProblem,
    kernels: Kernel | Sequence[Kernel] | Mapping[str, Kernel],
    *,
    dtype: str | None = None,
    precision: Precision | None = None,
    backward: bool | None = None,
    device: int | None = None,
    strict_nan: bool = False,
) -> Timing:
    """Time kernels side by side with the input kernel, eager, torch.compile and max-autotune.

    `kernels`: one, several, or several by name; each a file or its source, and verified first.
    Raises NoGpuError without an NVIDIA GPU, where nothing can be timed, and what `verify` raises.
    """
    from beamsearch.gpu.environment import check_platform
    from beamsearch.gpu.machine import find_machine

    check_platform()
    machine = find_machine(device)
    found = as_problem(problem, dtype=dtype, precision=precision, backward=backward)
    named = named_kernels(kernels)
    sources = {name: subject_of(kernel).source for name, kernel in named.items()}
    if not machine.measures:
        raise NoGpuError(
            "time needs an NVIDIA GPU: a modelled time is no measurement; run it on a machine with "
            "one, or see with `verify` whether the kernel is correct and what the model says"
        )

    from beamsearch.baselines.floor import beaten_floor, measure_floor
    from beamsearch.executor.opened import lane

    own = found.input_kernel
    files = {Path(kernel).resolve() for kernel in named.values() if not is_source(kernel)}
    if own is not None and own.resolve() not in files:
        named["input"] = own
        sources["input"] = subject_of(own).source
    with lane(found, machine, strict_nan=strict_nan) as (executor, _):
        floor = measure_floor(found, machine)
        comparison = compare(sources, executor)
        for taken in comparison.measurements.values():
            floor = beaten_floor(found, floor, taken, machine)
        return Timing(
            problem=found.name,
            gpu=executor.gpu,
            subject=next(iter(named)),
            kernels=list(named),
            floor=floor,
            comparison=comparison,
            scaled=found.scaled,
        )


def named_kernels(
    kernels: Kernel | Sequence[Kernel] | Mapping[str, Kernel],
) -> dict[str, Kernel]:
    """The kernels by the names that were given, or the shortest of each that is neither another's
    nor a baseline's. Raises UsageError."""
    if isinstance(kernels, Mapping):
        if taken := set(kernels) & set(TAKEN):
            raise UsageError(
                f"{taken.pop()} is a name of what stands beside the kernels; rename it"
            )
        given: dict[str, Kernel] = dict(kernels)
    else:
        given = {}
        for kernel in [kernels] if isinstance(kernels, str | Path) else kernels:
            given[_name(kernel, given)] = kernel
    if not given:
        raise UsageError("there is no kernel to time; give a file or a source")
    return given


def _name(kernel: Kernel, others: Mapping[str, Kernel]) -> str:
    if is_source(kernel):
        names = ["kernel", *(f"kernel-{number}" for number in range(2, len(others) + 3))]
    else:
        path = Path(kernel)
        names = [path.stem, path.name, str(path), str(path.resolve())]
    return next((name for name in names if name not in others and name not in TAKEN), names[-1])


def compare(sources: Mapping[str, str | None], executor: Executor) -> Comparison:
    """Every kernel verified, then all that may be timed interleaved; a reason for each other."""
    from beamsearch.records.baselines import baseline_subjects
    from beamsearch.records.job import CompareJob, JudgeJob, Subject

    missing: dict[str, str] = {}
    subjects = baseline_subjects()
    for name, source in sources.items():
        if source is None:
            missing[name] = "missing"
            continue
        subject = Subject(name=name, source=source)
        verdict = executor.run(JudgeJob(subject=subject)).verdict
        if verdict.correct:
            subjects.append(subject)
        else:
            missing[name] = f"{verdict.outcome}: {verdict.reason}"
    comparison = executor.run(CompareJob(subjects=subjects))
    return comparison.with_values(failed=comparison.failed | missing)


def shown(name: str) -> str:
    """A subject's name as people write it."""
    return name.replace("max_autotune", "max-autotune")


def ratios(subject: str, comparison: Comparison) -> dict[str, Ratio]:
    """Each other subject's time over the first kernel's, from the turns they shared."""
    from beamsearch.search.pairs import paired

    own = comparison.turns.get(subject)
    if own is None:
        return {}
    return {
        name: paired(turns, own)
        for name, turns in comparison.turns.items()
        if name != subject and len(turns) == len(own)
    }


def table(problem: str, gpu: str, subject: str, comparison: Comparison, floor: Floor) -> list[str]:
    """One line a subject: median, 20th to 80th percentile, times the floor, and its ratio."""
    over = ratios(subject, comparison)
    lines = [f"{problem} on {gpu}, floor {floor.time_ms:.4g} ms"]
    lines += [f"  {floor.corrected}"] if floor.corrected else []
    width = max(len(shown(name)) for name in (*comparison.measurements, *comparison.failed))
    for name, taken in comparison.measurements.items():
        line = (
            f"  {shown(name):<{width}}  {taken.time_ms:8.4g} ms  "
            f"({taken.p20_ms:.4g} to {taken.p80_ms:.4g}, {taken.count} calls{plain(taken)})  "
            f"{taken.time_ms / floor.time_ms:6.2f}x the floor"
        )
        if name in over:
            ratio = over[name]
            line += (
                f"  {ratio.median:.3f}x [{ratio.low:.3f}, {ratio.high:.3f}] the time of {subject}"
            )
            line += ": a tie" if ratio.verdict == "tie" else f": {ratio.verdict}"
        lines.append(line)
    lines += [f"  {shown(name):<{width}}  {why}" for name, why in comparison.failed.items()]
    return lines


def plain(taken: Measurement) -> str:
    """What the same call takes without a CUDA graph, or that it could have none."""
    if taken.graph is False:
        return "; no graph"
    told = "" if taken.plain_ms is None else f"; {taken.plain_ms:.4g} without a graph"
    return told + ("" if taken.host_us is None else f"; {taken.host_us:.0f} us of Python")
