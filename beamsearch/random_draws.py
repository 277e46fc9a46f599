"""Whether a reference draws random numbers: its results could not be compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from beamsearch.dispatch_modes import QuickMode


class Draws(QuickMode):
    """Sees the first operation that draws from torch's generators, by torch's own tag for those.

    On `meta` alone: elsewhere attention has kernels that are tagged though they draw nothing.
    """

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.seen = ""
        """Its name."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Any = None
    ) -> Any:
        """Do the operation."""
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded in func.tags:
            with self:  # dropout arrives whole in inference mode, and may have nothing to drop
                taken_apart = func.decompose(*args, **kwargs)
            if taken_apart is not NotImplemented:
                return taken_apart
            self.seen = self.seen or str(func)
        return func(*args, **kwargs)
