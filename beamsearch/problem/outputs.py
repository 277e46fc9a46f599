"""What a reference returns, as a list of tensors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from beamsearch.errors import ProblemError

if TYPE_CHECKING:
    import torch

ASKED = "let forward return a tensor, or a tuple or list of tensors"


def outputs_of(result: Any) -> list[torch.Tensor]:
    """One tensor, or those of a tuple or list. Raises ProblemError, which names what is none."""
    import torch

    values = list(result) if isinstance(result, tuple | list) else [result]
    if not values:
        raise ProblemError(f"the reference returns nothing; {ASKED}")
    for number, value in enumerate(values):
        which = f"output {number} of the reference" if len(values) > 1 else "its output"
        if not isinstance(value, torch.Tensor):
            raise ProblemError(f"{which} is a {type(value).__name__}; {ASKED}")
        if value.is_complex():
            raise ProblemError(
                f"{which} is complex, which no Triton kernel computes; return view_as_real of it"
            )
    return values
