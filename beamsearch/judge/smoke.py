"""How far a problem is shrunk for the interpreter: as little as there is time for."""

from __future__ import annotations

from beamsearch.judge.inputs import meta_arguments
from beamsearch.judge.processes import CandidateError, CandidateProcess, DeadlineMissed, ProcessDied
from beamsearch.judge.verify import INTERPRET_S, LOAD_S
from beamsearch.problem import Problem, shrink

BUDGETS = (2_000, 8_000, 32_000, 128_000)
"""Elements of inputs and outputs to try. The larger, the more programs and edges a kernel meets."""
OPERATIONS = 16_000
"""Tensors that the interpreter may make in one call, about half a second on one core."""


def smoke_problem(problem: Problem, source_file: str, process: CandidateProcess) -> Problem:
    """The problem at the largest budget at which this kernel, its first, is interpreted in time.

    What the interpreter needs depends on programs and their operations rather than on elements, so
    the kernel's operations are counted: no clock, the same answer every time. `process` is an
    interpreter's. Raises ProblemError where the problem cannot be shrunk.
    """
    try:
        process.ask("load", LOAD_S, source=source_file)
        chosen = shrink(problem, BUDGETS[0])
        for budget in BUDGETS[1:]:
            trial = shrink(problem, budget)
            arguments = meta_arguments(trial)
            answer = process.ask("weigh", INTERPRET_S, arguments=arguments, limit=OPERATIONS)
            if not answer["in_time"]:
                break
            chosen = trial
    except (CandidateError, ProcessDied, DeadlineMissed):
        return shrink(problem)  # this kernel tells nothing, but it is not the one to be judged
    return chosen
