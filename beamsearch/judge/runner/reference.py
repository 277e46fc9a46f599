"""The problem's reference as something to be timed: eager, or through `torch.compile`."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from beamsearch.problem.draws import with_draws
from beamsearch.problem.gradients import differentiate, leaf, ordinary
from beamsearch.problem.instance import defaults, draws_of, without_dropout
from beamsearch.problem.kernel import CallArguments
from beamsearch.problem.precision import set_products
from beamsearch.problem.problem import Problem, load_module

COMPILE_MODES = {
    "eager": None,
    "compile": "default",
    "max_autotune": "max-autotune-no-cudagraphs",
}
"""Subject kind -> mode of `torch.compile`, none for eager."""
COMPILES = "compiles"
"""Argument of a runner in which torch.compile will run."""


def problem_message(problem: Problem) -> dict[str, Any]:
    """A problem as JSON."""
    return vars(problem) | {"path": str(problem.path), "sizes": dict(problem.sizes)}


def read_problem_message(message: Mapping[str, Any]) -> Problem:
    """The problem in a message of `problem_message`."""
    return Problem(**{**message, "path": Path(message["path"])})


def reference_maker(
    message: Mapping[str, Any], device: str, mode: str | None
) -> Callable[[CallArguments], Callable[[], Any]]:
    """What binds the reference to arguments: their tensors as inputs, their state as weights. The
    model is made once, so that what `torch.compile` made of it serves every later call.

    Its products are by the problem's rule of precision from then on, in the whole process.
    """
    problem = read_problem_message(message)
    module = load_module(problem)
    made: list[Any] = []

    def built(arguments: CallArguments) -> torch.nn.Module:
        plain = arguments.of_forward
        with torch.inference_mode(False), defaults(device, getattr(torch, problem.dtype)):
            model = without_dropout(module.Model(*(arguments.init or module.get_init_inputs())))
        draws = draws_of(problem)
        model = with_draws(model, len(plain.forward) - len(draws), draws)
        for parameter in model.parameters():
            parameter.requires_grad_(problem.backward and parameter.is_floating_point())
        return model

    def make(arguments: CallArguments) -> Callable[[], Any]:
        if not made:
            model = built(arguments)
            made[:] = model, model if mode is None else torch.compile(model, mode=mode)
        model, call = made
        for name, tensor in (*model.named_parameters(), *model.named_buffers()):
            tensor.data = ordinary(arguments.state[name])
        set_products(problem.precision)  # last, since the problem's file may set what it likes
        plain = arguments.of_forward
        inputs = [arguments.values[name] for name in plain.forward]
        if not arguments.gradients:
            return attributes_kept(model, lambda: call(*inputs))
        leaves = list(map(leaf, inputs))
        given = [arguments.values[name] for name in arguments.forward[len(inputs) :]]
        parameters = list(model.parameters())
        return attributes_kept(model, lambda: differentiate(call, leaves, parameters, given))

    return make


def attributes_kept(model: torch.nn.Module, call: Callable[[], Any]) -> Callable[[], Any]:
    """The call, after which every attribute of the model is the object that it was: a module that
    puts its state into an attribute would let go of memory that a CUDA graph writes to."""
    before = [(part, dict(vars(part))) for part in model.modules()]

    def kept() -> Any:
        try:
            return call()
        finally:
            for part, attributes in before:
                now = vars(part)
                now.update((k, v) for k, v in attributes.items() if now.get(k) is not v)

    return kept
