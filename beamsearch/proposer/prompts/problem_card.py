"""The problem as prompts show it."""

from __future__ import annotations

from collections.abc import Mapping
from math import gcd

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import Instance, draws_of, instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem
from beamsearch.problem.shrink import shrink
from beamsearch.proposer.questions import ProblemCard

WIDEST_BYTES = 16
"""The widest load or store of a thread (CUDA C++ Programming Guide, device memory accesses)."""


def make_card(problem: Problem, torch_version: str, triton_version: str) -> ProblemCard:
    """What a prompt says of a problem. Nothing is computed: tensors are on `meta`."""
    import torch

    work = least_work(problem)
    instance = instantiate(problem, "meta")
    values = instance.arguments.of_forward.values
    depend = instance.has_gradient() if problem.backward else {}
    drawn = {draw.name: f" ({draw})" for draw in draws_of(problem)}
    size = getattr(torch, problem.dtype).itemsize
    shapes = {
        **work.input_shapes,
        **{k: tuple(v.shape) for k, v in values.items() if isinstance(v, torch.Tensor)},
        "the output": work.output_shape,
    }
    buffers = {id(buffer) for buffer in instance.model.buffers()}
    aligned = {
        name: gcd(shape[-1] * size, WIDEST_BYTES)
        for name, shape in shapes.items()
        if len(shape) > 1 and shape[-1] * size > WIDEST_BYTES
    }
    return ProblemCard(
        name=problem.name,
        source=problem.source,
        dtype=problem.dtype,
        products=work.products,
        input_shapes=work.input_shapes,
        output_shape=work.output_shape,
        bindable={
            name: _described(values[name]) + drawn.get(name, "") for name in _shortest(instance)
        },
        buffers=tuple(name for name in _shortest(instance) if id(values[name]) in buffers),
        gradients=tuple(name for name, depends in depend.items() if depends),
        narrow_rows={name: size for name, size in aligned.items() if size < WIDEST_BYTES},
        smallest=_smallest(problem, values),
        versions=f"Triton {triton_version}, PyTorch {torch_version}",
    )


def _described(value: object) -> str:
    """A tensor's shape and dtype, or the value."""
    import torch

    if not isinstance(value, torch.Tensor):
        return f"= {value!r}"
    return f"({', '.join(map(str, value.shape))}) {str(value.dtype).removeprefix('torch.')}"


def _smallest(problem: Problem, values: Mapping[str, object]) -> dict[str, str]:
    """The inputs and numbers that are others where the problem is shrunk, as they are there."""
    try:
        instance = instantiate(shrink(problem), "meta")
    except ProblemError:
        return {}
    arguments = instance.arguments.of_forward
    there = {name: arguments.values[name] for name in _shortest(instance)}
    return {
        name: _described(value)
        for name, value in there.items()
        if (name in arguments.forward or type(value) is int)
        and _described(value) != _described(values.get(name))
    }


def _shortest(instance: Instance) -> list[str]:
    """Names that can be bound, without a submodule's longer one for the same: `norm_eps` where
    `eps` is it."""
    arguments = instance.arguments.of_forward
    values = arguments.values
    paths = [path.replace(".", "_") for path, _ in instance.model.named_modules() if path]

    def is_longer(name: str) -> bool:
        ends = (name.removeprefix(f"{path}_") for path in paths if name.startswith(f"{path}_"))
        own = (end for end in ends if end not in arguments.forward)
        return any(end in values and values[end] is values[name] for end in own)

    return [name for name in sorted(values) if not is_longer(name)]
