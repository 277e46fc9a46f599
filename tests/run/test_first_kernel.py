"""A first kernel asked for: which kernels of a reply are tried, and what the next prompt says."""

import pytest

from beamsearch.errors import KernelError
from beamsearch.proposer.questions import Reply
from beamsearch.records.job import Judgement
from beamsearch.records.trace import Trace
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.run.first_kernel import write_first
from beamsearch.run.stop import StopToken
from tests.proposer.situations import first_question

RIGHT = Verdict(
    outcome=Outcome.CORRECT, checks=[Check(stage=Stage.SMOKE, name="small", passed=True)]
)
PATCH = "```text\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```\n"


def kernels(*words):
    return "".join(
        f"a way\n```python\ndef kernel_function(x):\n    return {w}\n```\n" for w in words
    )


class Thinker:
    """Gives the replies in turn, and judges what says `good` to be right."""

    name = "some-model"

    def __init__(self, *replies):
        self.replies = list(replies)
        self.prompts, self.judged = [], []

    def answer(self, question, prompt):
        self.prompts.append(prompt)
        return Reply(text=self.replies.pop(0), author="m")

    def run(self, job):
        self.judged.append(job.subject.name)
        source = job.subject.source
        if "good" in source:
            return Judgement(verdict=RIGHT)
        reason = f"wrong is{source.rpartition('return')[2].rstrip()}"
        return Judgement(verdict=Verdict(outcome=Outcome.WRONG, stage=Stage.SMOKE, reason=reason))


def first(folder, thinker):
    return write_first(Trace(folder), first_question(), thinker, thinker, StopToken())


def test_every_kernel_of_a_reply_is_tried_before_the_model_is_asked_again(tmp_path):
    thinker = Thinker(PATCH + kernels("bad1", "bad2"), kernels("bad3", "good", "bad4"))
    [found] = first(tmp_path, thinker)
    assert "return good" in found.proposal.source and found.proposal.author == "some-model"
    assert found.judgement.verdict == RIGHT
    assert thinker.judged == ["first-2", "first-3", "first_2", "first_2-2", "first_2-3"]
    assert "wrong is bad1" in thinker.prompts[1] and "wrong is bad2" in thinker.prompts[1]
    assert "no kernel yet" in thinker.prompts[1]
    # What is on disk is neither asked nor judged again.
    again = Thinker()
    assert first(tmp_path, again) == [found] and not again.judged


def test_a_model_that_writes_none_is_told_in_one_line(tmp_path):
    with pytest.raises(KernelError) as caught:
        first(tmp_path, Thinker(*[kernels("bad1", "bad2")] * 4))
    told = str(caught.value)
    assert "kernel 2: wrong at smoke: wrong is bad2" in told and "--kernel" in told
    assert "\n" not in told
