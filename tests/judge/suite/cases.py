"""The suite's kernel files, and what the judge says of each."""

from __future__ import annotations

import ast
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

from beamsearch.errors import BeamsearchError
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import find_machine, modelled
from beamsearch.problem.problem import read_problem
from beamsearch.records.job import JudgeJob, Judgement, Subject

Kind = Literal["cheats", "wrong", "hostile", "honest"]
KINDS: tuple[Kind, ...] = ("cheats", "wrong", "hostile", "honest")
FOLDERS: dict[Kind, tuple[str, ...]] = {
    "cheats": ("cheats", "cheats_on_plans", "cheats_on_gpu"),
    "wrong": ("wrong", "wrong_blind"),
    "hostile": ("hostile",),
    "honest": ("honest", "honest_more"),
}
"""Where the files of a kind are."""
FOLDER = Path(__file__).parent
HOSTILE_DEADLINE_S = 6.0
"""Every deadline of the judge is cut to this for hostile kernels, so that they take no minutes."""
SAME_TIME = 0.95
"""Part of an honest kernel's time that one of the same work shows at least."""
GRACE_S = 5.0
"""Seconds after its deadline by which a hostile kernel must have its verdict."""
START_S = 3.0
"""Seconds that pass before the first deadline begins: import, and compilation of every call."""


@dataclass(frozen=True)
class Case:
    """One kernel file."""

    kind: Kind
    path: Path
    source: str
    what: str
    """The first line of its docstring."""
    problem: str
    needs_gpu: str | None
    """Why it can show nothing without a GPU, where that is so."""
    harmless: str | None = None
    """Of a cheat: why it is correct, and gains nothing."""
    same_work: str | None = None
    """Of such a cheat: the honest kernel that does the same on the GPU, whose time it must have."""

    @property
    def name(self) -> str:
        return f"{self.path.parent.name}/{self.path.stem}"


@dataclass(frozen=True)
class Result:
    """What became of a case."""

    case: Case
    judgement: Judgement | None
    error: str
    """Why there is no judgement."""
    seconds: float
    next_is_fine: bool | None = None
    """After a hostile kernel: whether an honest one is judged correct."""
    honest_ms: float = 0.0
    """What the honest kernel takes that does the same work."""

    @property
    def correct(self) -> bool:
        return self.judgement is not None and self.judgement.verdict.correct

    @property
    def as_expected(self) -> bool:
        """Cheats and wrong kernels are rejected, but for cheats that gain nothing; honest ones are
        correct; hostile ones do no harm."""
        if self.judgement is None:
            return False
        if self.case.kind == "hostile":
            in_time = self.seconds < START_S + HOSTILE_DEADLINE_S + GRACE_S
            # One that is correct did no harm, and was judged whole, which takes its time.
            return (in_time or self.correct) and self.next_is_fine is True
        if self.case.harmless is not None:
            return not self.gains
        return self.correct == (self.case.kind == "honest")

    @property
    def gains(self) -> bool:
        """Whether it shows less than its own work takes."""
        measured = self.judgement and self.judgement.measurement
        return bool(measured) and measured.time_ms < SAME_TIME * self.honest_ms


def read_cases(only: Iterable[str] = ()) -> list[Case]:
    """All cases in order, or those whose `folder/name` holds one of the texts in `only`."""
    wanted = tuple(only)
    cases = [
        read_case(kind, path)
        for kind in KINDS
        for folder in FOLDERS[kind]
        for path in sorted((FOLDER / folder).glob("*.py"))
    ]
    return [case for case in cases if not wanted or any(text in case.name for text in wanted)]


def read_case(kind: Kind, path: Path) -> Case:
    """A case from its file, which is read and never imported."""
    source = path.read_text()
    tree = ast.parse(source)
    constants = {
        node.targets[0].id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and node.targets[0].id in ("PROBLEM", "NEEDS_GPU", "HARMLESS", "SAME_WORK")
    }
    return Case(
        kind=kind,
        path=path,
        source=source,
        what=(ast.get_docstring(tree) or "").partition("\n")[0],
        problem=constants["PROBLEM"],
        needs_gpu=constants.get("NEEDS_GPU"),
        harmless=constants.get("HARMLESS"),
        same_work=constants.get("SAME_WORK"),
    )


def run_cases(
    cases: Iterable[Case], device: int | None, tell: Callable[[Result], None] = lambda _: None
) -> list[Result]:
    """Every case through the real judge, one executor a problem; hostile ones last and alone."""
    cases = list(cases)
    by_problem: dict[str, list[Case]] = {}
    for case in cases:
        if case.kind != "hostile":
            by_problem.setdefault(case.problem, []).append(case)
    results = []
    for problem, group in by_problem.items():
        # A GPU takes one candidate at a time; the interpreter's slots are filled.
        slots = ThreadPoolExecutor(1 if device is not None else 2)
        with opened(problem, device) as executor, slots as pool:
            for result in pool.map(partial(judge, executor), group):
                tell(result)
                results.append(result)
    results += run_hostile([case for case in cases if case.kind == "hostile"], device, tell)
    return sorted(results, key=lambda result: (KINDS.index(result.case.kind), result.case.name))


def run_hostile(
    cases: list[Case], device: int | None, tell: Callable[[Result], None]
) -> list[Result]:
    """Hostile kernels in one warm lane, and in a new one after each that did harm."""
    results: list[Result] = []
    while len(results) < len(cases):
        problem = cases[len(results)].problem
        with opened(problem, device) as executor:
            judge(executor, honest_for(problem))
            for case in cases[len(results) :]:
                if case.problem != problem:
                    break
                results.append(judge_hostile(executor, case))
                tell(results[-1])
                if not results[-1].next_is_fine:
                    break
    return results


def honest_for(problem: str) -> Case:
    """Some honest kernel for a problem."""
    return next(case for case in read_cases(["honest/"]) if case.problem == problem)


@contextmanager
def opened(problem: str, device: int | None) -> Iterator[LocalExecutor]:
    """An executor for one of the suite's problems, in a scratch folder that goes with it."""
    path = FOLDER / "problems" / problem / "problem.py"
    with tempfile.TemporaryDirectory(prefix="beamsearch-suite-") as scratch:
        executor = LocalExecutor(
            read_problem(path),
            machine=find_machine(device) if device is not None else modelled(),
            scratch=Path(scratch),
            seed=time.time_ns() % 2**31,  # secret, as it should be
        )
        try:
            yield executor
        finally:
            executor.close()


def judge(executor: LocalExecutor, case: Case) -> Result:
    """One case, timed on the wall clock."""
    began = time.monotonic()
    judgement, error = None, ""
    try:
        job = JudgeJob(subject=Subject(name=case.path.stem, source=case.source))
        judgement = executor.run(job)
        if case.kind == "wrong" and judgement.verdict.correct:
            # A round draws some of the input sets; to win, a kernel has to be right on all of them.
            judgement = executor.run(job.with_values(thorough=True))
    except BeamsearchError as raised:
        error = str(raised)
    seconds = time.monotonic() - began
    honest_ms = 0.0
    if case.same_work is not None:
        twin = (FOLDER / f"{case.same_work}.py").read_text()
        honest = executor.run(JudgeJob(subject=Subject(name=case.same_work, source=twin)))
        assert honest.measurement is not None
        honest_ms = honest.measurement.time_ms
    return Result(case, judgement, error, seconds, honest_ms=honest_ms)


def judge_hostile(executor: LocalExecutor, case: Case) -> Result:
    """A hostile kernel, with short deadlines, and an honest one after it."""
    with short_deadlines(HOSTILE_DEADLINE_S):
        result = judge(executor, case)
    after = judge(executor, honest_for(case.problem))
    return Result(case, result.judgement, result.error, result.seconds, after.correct)


@contextmanager
def short_deadlines(seconds: float) -> Iterator[None]:
    """Every deadline that a candidate has in the judge, at most this long."""
    names = ("LOAD_S", "CAPTURE_S", "COMPILE_S", "INTERPRET_S", "GPU_CALL_S", "FIRST_CALL_S")
    judge = [m for name, m in sys.modules.items() if name.startswith("beamsearch.judge.")]
    found = [(module, name) for module in judge for name in names if hasattr(module, name)]
    before = [(module, name, getattr(module, name)) for module, name in found]
    for module, name, value in before:
        setattr(module, name, min(value, seconds))
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)
