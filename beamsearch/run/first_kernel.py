"""A first kernel for a problem that comes without one: asked for, judged, asked for again."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from beamsearch.errors import KernelError
from beamsearch.executor.executor import Executor
from beamsearch.proposer.prompts.render import reask, render
from beamsearch.proposer.questions import FirstQuestion, Proposer
from beamsearch.proposer.replies import UnreadableReply, read_variants
from beamsearch.records.job import JudgeJob, Judgement, Subject
from beamsearch.records.proposal import Proposal
from beamsearch.records.trace import Trace, recorded
from beamsearch.run.ask import Answers
from beamsearch.run.stop import StopToken

DESCRIPTION = "a first kernel written for the problem"
TRIES = 4
"""One answer, and as many corrected ones as turn nearly every failure right elsewhere."""


@dataclass(frozen=True)
class Judged:
    """A proposal and what the judge found."""

    proposal: Proposal
    judgement: Judgement

    @property
    def correct(self) -> bool:
        """Whether the judge found it so."""
        return self.judgement.verdict.correct


def write_first(
    trace: Trace,
    question: FirstQuestion,
    proposer: Proposer,
    executor: Executor,
    stop: StopToken,
) -> list[Judged]:
    """The kernels of the first reply that has a correct one, those that are; prompts, replies and
    verdicts stand with worker 0 of round 0. Raises KernelError where no answer is correct, and what
    asking raises."""
    folder = trace.worker(0, 0)
    answers = Answers(trace, folder, proposer, stop)
    prompt, problem = render(question), ""
    for attempt in range(TRIES):
        suffix = "" if attempt == 0 else f"_{attempt + 1}"
        text = answers.get(question, prompt, attempt, ("first_prompt", "first_reply"))
        name = f"first{suffix}"
        correct, problem = _correct(text, proposer.name, folder, name, executor, stop)
        if correct:
            return correct
        prompt = reask(prompt, text, problem)
    raise KernelError(
        f"the model wrote no correct first kernel in {TRIES} tries; the last: {problem}. "
        "Give one with --kernel"
    )


def _correct(
    text: str, author: str, folder: Path, name: str, executor: Executor, stop: StopToken
) -> tuple[list[Judged], str]:
    """The kernels of a reply that are correct, and what is wrong with the others."""
    try:
        variants = read_variants(text, "")
    except UnreadableReply as error:
        return [], str(error)
    faults, correct = [], []
    for number, variant in enumerate(variants):
        called = f"{name}-{number + 1}" if number else name
        source = variant.source
        if source is None:
            faults.append("a patch, and there is no kernel yet to apply it to")
            continue
        job = JudgeJob(subject=Subject(name=called, source=source))

        def judge(job: JudgeJob = job) -> Judgement:
            judged = executor.run(job)
            stop.check()
            return judged

        judged = recorded(folder / f"{called}.json", Judgement, judge)
        verdict = judged.verdict
        if verdict.correct:
            proposal = variant.with_values(description=DESCRIPTION, author=author)
            correct.append(Judged(proposal, judged))
        else:
            faults.append(f"{verdict.outcome.value} at {verdict.stage}: {verdict.reason}")
    if len(faults) == 1:
        return correct, faults[0]
    return correct, "; ".join(f"kernel {number}: {fault}" for number, fault in enumerate(faults, 1))
