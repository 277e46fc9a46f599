"""The problem as prompts show it."""

from __future__ import annotations

from math import gcd

from beamsearch.problem.instance import draws_of, instantiate
from beamsearch.problem.least_work import least_work
from beamsearch.problem.problem import Problem
from beamsearch.proposer.questions import ProblemCard

WIDEST_BYTES = 16
"""The widest load or store of a thread (CUDA C++ Programming Guide, device memory accesses)."""


def make_card(problem: Problem, torch_version: str, triton_version: str) -> ProblemCard:
    """What a prompt says of a problem. Nothing is computed: tensors are on `meta`."""
    import torch

    work = least_work(problem)
    instance = instantiate(problem, "meta")
    arguments = instance.arguments.of_forward
    values = arguments.values
    depend = instance.has_gradient() if problem.backward else {}
    drawn = {draw.name: f" ({draw})" for draw in draws_of(problem)}
    size = getattr(torch, problem.dtype).itemsize
    shapes = {
        **work.input_shapes,
        **{k: tuple(v.shape) for k, v in values.items() if isinstance(v, torch.Tensor)},
        "the output": work.output_shape,
    }
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
            name: (
                f"({', '.join(map(str, value.shape))}) "
                f"{str(value.dtype).removeprefix('torch.')}{drawn.get(name, '')}"
            )
            if isinstance(value, torch.Tensor)
            else f"= {value!r}"
            for name, value in sorted(values.items())
        },
        gradients=tuple(name for name, depends in depend.items() if depends),
        narrow_rows={name: size for name, size in aligned.items() if size < WIDEST_BYTES},
        versions=f"Triton {triton_version}, PyTorch {torch_version}",
    )
