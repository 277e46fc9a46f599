"""A first kernel for a problem that comes without one: asked for, judged, asked for again."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

from beamsearch.errors import KernelError
from beamsearch.executor.jobs import Executor, JudgeJob, Judgement, Subject
from beamsearch.proposer.prompts import reask, render
from beamsearch.proposer.questions import FirstQuestion, Proposer
from beamsearch.proposer.replies import UnreadableReply, read_variants
from beamsearch.records.call import Call
from beamsearch.records.trace import Trace, recorded, write_record, write_text

TRIES = 4
"""One answer, and as many corrected ones as turn nearly every failure right elsewhere."""


def write_first(
    trace: Trace,
    question: FirstQuestion,
    proposer: Proposer,
    executor: Executor,
    check_stop: Callable[[], None],
) -> str:
    """The source of a first kernel that is correct; prompts, replies and verdicts stand with
    worker 0 of round 0. Raises KernelError where no answer is correct, and what asking raises."""
    folder = trace.worker(0, 0)
    prompt, problem = render(question), ""
    for attempt in range(TRIES):
        suffix = "" if attempt == 0 else f"_{attempt + 1}"
        reply_file = folder / f"first_reply{suffix}.txt"
        if not reply_file.is_file():
            prompt_file = folder / f"first_prompt{suffix}.txt"
            write_text(prompt_file, prompt)
            reply = proposer.answer(question, prompt)
            check_stop()
            call = Call(
                round=0,
                worker=0,
                purpose=question.purpose,
                attempt=attempt,
                prompt_file=trace.relative(prompt_file),
                reply_file=trace.relative(reply_file),
                prompt_sha256=hashlib.sha256(prompt.encode()).hexdigest(),
                **reply.model_dump(exclude={"text"}),
            )
            write_record(folder / "calls" / f"first_reply{suffix}.json", call)
            write_text(reply_file, reply.text)
        text = reply_file.read_text()
        source, problem = _first_correct(text, folder, f"first{suffix}", executor, check_stop)
        if source is not None:
            return source
        prompt = reask(prompt, text, problem)
    raise KernelError(
        f"the model wrote no correct first kernel in {TRIES} tries; the last: {problem}. "
        "Give one with --kernel"
    )


def _first_correct(
    text: str, folder: Path, name: str, executor: Executor, check_stop: Callable[[], None]
) -> tuple[str | None, str]:
    """The first kernel of a reply that is correct, or None and what is wrong with each."""
    try:
        variants = read_variants(text, "")
    except UnreadableReply as error:
        return None, str(error)
    faults = []
    for number, variant in enumerate(variants):
        called = f"{name}-{number + 1}" if number else name
        source = variant.source
        if source is None:
            faults.append("a patch, and there is no kernel yet to apply it to")
            continue
        job = JudgeJob(subject=Subject(name=called, source=source))

        def judge(job: JudgeJob = job) -> Judgement:
            judged = executor.run(job)
            check_stop()
            return judged

        verdict = recorded(folder / f"{called}.json", Judgement, judge).verdict
        if verdict.correct:
            return source, ""
        faults.append(f"{verdict.outcome.value} at {verdict.stage}: {verdict.reason}")
    if len(faults) == 1:
        return None, faults[0]
    return None, "; ".join(f"kernel {number}: {fault}" for number, fault in enumerate(faults, 1))
