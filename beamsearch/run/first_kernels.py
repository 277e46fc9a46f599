"""First kernels for a problem that comes without one: the compiler's and the model's, verified, the
fastest first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from beamsearch.errors import KernelError
from beamsearch.executor.executor import Executor
from beamsearch.proposer.questions import FirstQuestion, Proposer
from beamsearch.records.candidate import Candidate
from beamsearch.records.job import (
    CompareJob,
    Comparison,
    JudgeJob,
    Judgement,
    Subject,
)
from beamsearch.records.measurement import Measurement
from beamsearch.records.proposal import Proposal
from beamsearch.records.trace import Trace, read_record, recorded, write_record, write_text
from beamsearch.run.candidates import source_fingerprint
from beamsearch.run.compiled import CHOSEN, TUNED, WITHOUT_LIBRARY, compiled_kernels
from beamsearch.run.first_kernel import Judged, write_first
from beamsearch.run.stop import StopToken

NEXT = "give one with --kernel, or let a model write it (OPENAI_API_KEY)"


def first_name(number: int) -> str:
    """`r0-s0` is the kernel that the run is measured against."""
    return f"r0-s{number}"


def first_candidates(trace: Trace) -> list[Candidate]:
    """Every first kernel that was judged, in order."""
    paths = trace.round(0).glob("r0-s*.json")
    by_number = sorted(paths, key=lambda path: int(path.stem.removeprefix("r0-s")))
    return [read_record(path, Candidate) for path in by_number]


@dataclass(frozen=True)
class FirstKernels:
    """Finds them, each step taken once."""

    trace: Trace
    executor: Executor
    proposer: Proposer
    question: FirstQuestion
    quick: bool
    """Whether the compiler's choice will do, untuned."""
    stop: StopToken
    tell: Callable[[str], None]
    """Takes what people should know of those that came to nothing."""

    def gather(self) -> str:
        """The source of the fastest; a candidate's record is left for each. The model answers while
        the compiler works; where neither has a correct one, the compiler does without libraries.
        Raises KernelError where none is correct then, and what asking raises."""
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(self._written) if self.proposer.reads_prompts else None
            found, reasons = self._compiled(CHOSEN if self.quick else TUNED)
            written, fault = asked.result() if asked is not None else ([], [])
        found, reasons = found + written, reasons + fault
        if not any(kernel.correct for kernel in found):
            more, faults = self._compiled(WITHOUT_LIBRARY)
            found, reasons = found + more, reasons + faults
        if not any(kernel.correct for kernel in found):
            told = "; ".join(reasons)
            problem = self.question.problem.name
            raise KernelError(f"{problem} has no input_kernel.py; {NEXT}. {told}")
        for reason in reasons:
            self.tell(reason)
        return self._leave(self._fastest_first(found))

    def _compiled(self, ways: Sequence[str]) -> tuple[list[Judged], list[str]]:
        """The compiler's, and what is wrong with those of them that are not right."""
        folder, problem = self.trace.round(0) / "compiled", self.question.problem.name
        given = folder, self.executor, problem, self.stop
        compiled, reasons = compiled_kernels(*given, ways)
        different: dict[str | None, Proposal] = {}
        for kernel in compiled:
            different.setdefault(source_fingerprint(kernel.source), kernel)
        found = [self._judged(kernel) for kernel in different.values()]
        for judged in found:
            verdict, what = judged.judgement.verdict, judged.proposal.description
            if not verdict.correct:
                reasons.append(f"{what}: {verdict.outcome.value}: {verdict.reason}")
        return found, reasons

    def _judged(self, kernel: Proposal) -> Judged:
        name = source_fingerprint(kernel.source)

        def judge() -> Judgement:
            subject = Subject(name=f"first {name}", source=kernel.source)
            judgement = self.executor.run(JudgeJob(subject=subject))
            self.stop.check()
            return judgement

        path = self.trace.round(0) / "first" / f"{name}.json"
        return Judged(kernel, recorded(path, Judgement, judge))

    def _written(self) -> tuple[list[Judged], list[str]]:
        """The model's. That it wrote none ends the run only where there is no other."""
        try:
            kernels = write_first(
                self.trace, self.question, self.proposer, self.executor, self.stop
            )
            return kernels, []
        except KernelError as error:
            return [], [str(error)]

    def _fastest_first(self, found: list[Judged]) -> list[tuple[Judged, Measurement | None]]:
        """Those that are correct by their times, all taken in one visit; then the others."""
        correct = [kernel for kernel in found if kernel.correct]
        times = {id(kernel): kernel.judgement.measurement for kernel in correct}
        if len(correct) > 1 and self.executor.measures:
            subjects = [
                Subject(name=str(n), source=k.proposal.source) for n, k in enumerate(correct)
            ]

            def compare() -> Comparison:
                comparison = self.executor.run(CompareJob(subjects=subjects))
                self.stop.check()
                return comparison

            path = self.trace.round(0) / "first" / "comparison.json"
            measured = recorded(path, Comparison, compare).measurements
            # One that could not be compared may have a time of another stay on a GPU.
            times = {id(k): measured.get(str(n)) for n, k in enumerate(correct)}
        timed = [(k, times[id(k)]) for k in correct if times.get(id(k)) is not None]
        timed.sort(key=lambda pair: pair[1].time_ms if pair[1] else 0.0)
        return [*timed, *((kernel, None) for kernel in found if not kernel.correct)]

    def _leave(self, ordered: list[tuple[Judged, Measurement | None]]) -> str:
        """A record and a source for each; the run's own first kernel last: it is the mark."""
        for number, (kernel, time) in enumerate(ordered):
            proposal, name = kernel.proposal, first_name(number)
            path = self.trace.round(0) / f"{name}.py"
            write_text(path, proposal.source or "")
            candidate = Candidate(
                name=name,
                round=0,
                description=proposal.description,
                author=proposal.author,
                kernel_file=self.trace.relative(path),
                fingerprint=source_fingerprint(proposal.source),
                verdict=kernel.judgement.verdict,
                measurement=time,
            )
            write_record(path.with_suffix(".json"), candidate)
        source = ordered[0][0].proposal.source
        assert source is not None
        write_text(self.trace.input_file, source)
        return source
