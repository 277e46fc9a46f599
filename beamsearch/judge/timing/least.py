"""How much of a problem's inputs and parameters its outputs depend on."""

from __future__ import annotations

import random
import secrets

from beamsearch.judge.verification.oracle import as_outputs
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import Problem
from kernel_profiling.gpus import SECTOR_BYTES

SAMPLES = 32
"""Places tried. Where all matter, nine tenths of the bytes do with 97% certainty."""
MARGIN = 0.1


def needed_share(problem: Problem, device: str) -> float:
    """Part of the inputs' and parameters' bytes that any kernel must read, at least.

    Of random places in them, how many change the reference's output when they are not a number: a
    strided input, or the weights of an expert that nobody asks, are read in part only.
    """
    import torch

    draw = random.Random(secrets.randbits(64))
    instance = instantiate(problem, device, secrets.randbits(31))
    tensors = [x for x in instance.inputs if isinstance(x, torch.Tensor)]
    tensors += list(instance.arguments.state.values())
    floating = [x for x in tensors if x.is_floating_point() and x.is_contiguous()]
    before = as_outputs(instance.reference())
    if not floating or any(bool(x.isnan().any()) for x in before if x.is_floating_point()):
        return 0.0
    sizes = [x.numel() * x.element_size() for x in floating]
    mattered = 0
    for _ in range(SAMPLES):
        (chosen,) = draw.choices(floating, sizes)
        length = max(1, SECTOR_BYTES // chosen.element_size())
        start = draw.randrange(chosen.numel()) // length * length
        place = chosen.view(-1)[start : start + length]
        kept = place.clone()
        place.fill_(float("nan"))
        after = as_outputs(instance.reference())
        place.copy_(kept)
        mattered += any(not torch.equal(a, b) for a, b in zip(before, after, strict=True))
    # Of whole numbers nothing is known: an index need not be read to be harmless.
    known = sum(sizes) / sum(x.numel() * x.element_size() for x in tensors)
    return known * max(0.0, mattered / SAMPLES - MARGIN)
