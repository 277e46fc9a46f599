"""The problem's reference as something to be timed: eager, or through `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True)
class BoundReference:
    """The reference on its arguments."""

    call: Callable[[], Any]
    copied: Sequence[tuple[torch.Tensor, torch.Tensor]]
    """Weights of recurrent layers, and what they are in the arguments: cuDNN wants those of a layer
    in one piece, and would put them together in each call."""

    def refresh(self) -> None:
        """Take over what the arguments are now; before each call, and no part of it."""
        for own, given in self.copied:
            own.copy_(given)

    def __call__(self) -> Any:
        return self.call()


def reference_maker(
    message: Mapping[str, Any], device: str, mode: str | None
) -> Callable[[CallArguments], BoundReference]:
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

    def make(arguments: CallArguments) -> BoundReference:
        if not made:
            model = built(arguments)
            made[:] = model, model if mode is None else torch.compile(model, mode=mode)
        model, call = made
        recurrent = [part for part in model.modules() if isinstance(part, torch.nn.RNNBase)]
        in_one_piece = {id(weight) for part in recurrent for weight in part.parameters()}
        own = dict(model.named_parameters()) | dict(model.named_buffers())
        copied = []
        for name, tensor in own.items():
            if id(tensor) in in_one_piece:
                copied.append((tensor.data, arguments.state[name]))
            else:
                tensor.data = ordinary(arguments.state[name])
        set_products(problem.precision)  # last, since the problem's file may set what it likes
        inputs = [arguments.values[name] for name in arguments.of_forward.forward]
        run = partial(call, *inputs)
        if arguments.gradients:
            leaves, parameters = list(map(leaf, inputs)), list(model.parameters())
            given = [arguments.values[name] for name in arguments.forward[len(inputs) :]]
            run = partial(differentiate, call, leaves, parameters, given)
        bound = BoundReference(attributes_kept(model, run), copied)
        bound.refresh()
        return bound

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
