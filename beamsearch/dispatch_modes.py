"""Torch's dispatch modes, without its compiler."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class QuickMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """A dispatch mode that does not import torch's compiler first, which takes over a second."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False


def skip_dynamo() -> None:
    """The same for the modes of torch's own modules that are imported from now on."""
    setattr(TorchDispatchMode, "_should_skip_dynamo", classmethod(lambda cls: False))  # noqa: B010
