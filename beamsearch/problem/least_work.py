"""The least bytes and FLOPs that a problem takes."""

from __future__ import annotations

from dataclasses import dataclass, field

from beamsearch.errors import ProblemError
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem


@dataclass(frozen=True)
class LeastWork:
    """Bytes every input, parameter and output take once, and the reference's FLOPs."""

    bytes_read: int
    bytes_written: int
    flops: int
    input_shapes: dict[str, tuple[int, ...]]
    output_shape: tuple[int, ...]
    read: dict[str, int] = field(default_factory=dict)
    """Bytes of each input and parameter."""
    products: str = "float32"
    """The cheapest format that a kernel may compute products in: `tf32`, or the problem's dtype."""

    @property
    def least_bytes(self) -> int:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written


def least_work(problem: Problem) -> LeastWork:
    """Least bytes and FLOPs at the problem's shapes, on `meta` tensors: no memory, no GPU.

    It also says what kernels may compute products in (`LeastWork.products`): judge, floor and
    prompts all go by that. Raises ProblemError where the reference draws random numbers.
    """
    import torch

    from beamsearch.problem.dispatch_modes import Draws, Tf32, skip_dynamo

    skip_dynamo()  # ahead of the counter's own modes
    from torch.utils.flop_counter import FlopCounterMode

    instance = instantiate(problem, "meta")
    counter = FlopCounterMode(display=False)
    with counter, Tf32() as by_default, Draws() as draws:
        output = instance.reference()
    if draws.seen:
        raise ProblemError(
            f"{problem.name} draws random numbers in forward ({draws.seen}), so that no two "
            "results are equal: draw them in get_inputs, or end __init__ with `self.eval()`"
        )
    in_tf32 = by_default.seen and problem.dtype == "float32" and problem.precision == "reference"
    named = zip(instance.arguments.forward, instance.inputs, strict=True)
    inputs = {name: value for name, value in named if isinstance(value, torch.Tensor)}
    read = {name: t.nbytes for name, t in (inputs | dict(instance.arguments.state)).items()}
    outputs = output if isinstance(output, tuple | list) else [output]
    return LeastWork(
        bytes_read=sum(read.values()),
        bytes_written=sum(t.nbytes for t in outputs),
        flops=int(counter.get_total_flops()),
        input_shapes={name: tuple(t.shape) for name, t in inputs.items()},
        output_shape=tuple(outputs[0].shape),
        read=read,
        products="tf32" if in_tf32 else problem.dtype,
    )
