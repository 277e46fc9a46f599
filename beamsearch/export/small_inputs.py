"""Inputs that are small and go with the problem's own parameters: what a CPU computes at once."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import Instance, instantiate
from beamsearch.problem.outputs import outputs_of
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import integer_sizes, measure

ELEMENTS = 50_000
"""Of inputs and outputs: a CPU computes that at once, gradients included."""


def shrunk_inputs(problem: Problem) -> Problem:
    """The problem with smaller inputs, where its sizes allow; parameters and settings stay."""
    fixed = _fixed(instantiate(problem, "meta"))
    sizes = integer_sizes(problem)
    extent = measure(problem)
    halving = {name for name, size in sizes.items() if size > 1}
    while halving and extent is not None and extent.elements > ELEMENTS:
        name = max(halving, key=lambda one: sizes[one])
        trial = replace(problem, sizes=sizes | {name: sizes[name] // 2})
        smaller = measure(trial)
        if smaller is None or smaller.elements >= extent.elements or _changed(trial, fixed):
            halving.remove(name)
            continue
        sizes, extent = dict(trial.sizes), smaller
        halving = {one for one in halving if sizes[one] > 1}
    return replace(problem, sizes=sizes)


def _changed(problem: Problem, fixed: dict[str, Any]) -> bool:
    try:
        return _fixed(instantiate(problem, "meta")) != fixed
    except ProblemError:
        return True


def _fixed(instance: Instance) -> dict[str, Any]:
    """Shapes of parameters and buffers, and every plain value."""
    own = {name: tuple(value.shape) for name, value in instance.arguments.state.items()}
    values = instance.arguments.values.items()
    plain = {name: value for name, value in values if not isinstance(value, torch.Tensor)}
    return {name: repr(value) for name, value in plain.items()} | own


def modes(instance: Instance) -> tuple[bool, ...]:
    """Values of `training` with which the model computes what the reference does."""
    expected = outputs_of(instance.reference())
    found = []
    for mode in (False, True):
        model = copy.deepcopy(instance.model).train(mode)
        torch.manual_seed(0)
        outputs = outputs_of(replace(instance, model=model).reference())
        pairs = zip(outputs, expected, strict=True)
        if all(torch.equal(one.nan_to_num(), other.nan_to_num()) for one, other in pairs):
            found.append(mode)
    return tuple(found)
