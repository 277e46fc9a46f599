"""Repairs of one worker's variants: in which order they are asked, and what stops them."""

from types import SimpleNamespace

import pytest

from beamsearch.errors import NoAnswer, OutOfBudget, Unanswered
from beamsearch.proposer.questions import Situation
from beamsearch.proposer.replies import read_variants
from beamsearch.records.candidate import Candidate
from beamsearch.records.proposal import Proposal
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.run.candidates import Made, source_fingerprint
from beamsearch.run.repairs import Repairs
from tests.proposer.situations import DIAGNOSIS, fields

RIGHT = Verdict(
    outcome=Outcome.CORRECT, checks=[Check(stage=Stage.SMOKE, name="small", passed=True)]
)
WRONG = Verdict(outcome=Outcome.WRONG, stage=Stage.SMOKE, reason="every tenth value")


def kernel(word):
    return f"def kernel_function(x):\n    return {word}\n"


def candidate(name, source, verdict):
    return Candidate(
        name=name,
        round=1,
        description="",
        author="m",
        fingerprint=source_fingerprint(source),
        verdict=verdict,
    )


class Worker:
    """A worker whose model answers as it is told to, and whose judge takes what says `good`."""

    def __init__(self, answers):
        self.answers = answers
        self.asked = []
        self.shared = SimpleNamespace(settings=SimpleNamespace(repairs=2))
        self.view = SimpleNamespace(seen={})

    def doing(self, what):
        pass

    def ask_for_kernels(self, question, prompt_stem, reply_stem, base):
        self.asked.append(question.name)
        answer = self.answers[question.name]
        if isinstance(answer, Exception):
            raise answer
        text = "".join(f"told\n```python\n{source}```\n" for source in answer)
        return read_variants(text, base), ""

    def judge(self, made, seen):
        source = made.proposal.source
        verdict = RIGHT if "good" in source else WRONG
        return candidate(made.name, source, verdict)

    def trial(self, situation, candidate):
        raise AssertionError("nothing was repaired twice here")


def repairs(answers):
    """Repairs of as many failed variants as there are answers."""
    worker = Worker({f"r1-w0-v{n}-f1": answer for n, answer in enumerate(answers)})
    tried = []
    for n in range(len(answers)):
        source = kernel(f"bad{n}")
        variant = Proposal(description="", source=source)
        name = f"r1-w0-v{n}"
        tried.append((Made(name, variant), candidate(name, source, WRONG)))
    return worker, lambda: Repairs(worker, Situation(**fields()), DIAGNOSIS).run(tried)


@pytest.mark.parametrize(
    ("answers", "raised"),
    [
        ([Unanswered("later"), OutOfBudget("limit"), [kernel("good")]], Unanswered),
        ([OutOfBudget("limit"), Unanswered("later"), [kernel("good")]], Unanswered),
        ([NoAnswer("never"), OutOfBudget("limit"), [kernel("good")]], OutOfBudget),
        ([NoAnswer("never"), [kernel("good")], Unanswered("later")], Unanswered),
        ([[kernel("good")], NoAnswer("never"), [kernel("good")]], NoAnswer),
    ],
)
def test_every_repair_has_its_turn_before_what_stopped_one_is_raised(answers, raised):
    worker, run = repairs(answers)
    with pytest.raises(raised) as caught:
        run()
    assert type(caught.value) is raised
    assert worker.asked == [f"r1-w0-v{n}-f1" for n in range(len(answers))]


def test_a_reply_that_quotes_the_failed_kernel_first_is_taken_by_its_new_one():
    _, run = repairs([[kernel("bad0"), kernel("good0")]])
    (repaired,) = run()
    assert repaired.verdict.correct and repaired.name == "r1-w0-v0-f1"
