"""Whether a candidate replaced what others use: timers, events, comparisons, messages.

What the harness itself calls was bound before the candidate came, so that a patch gains nothing by
itself; a kernel that patches is refused because it has no honest reason to.
"""

from __future__ import annotations

import json
import socket
import struct
import sys
import time
from pathlib import Path
from typing import Any

import torch

from beamsearch.judge.policy import JUDGES_OWN

WATCHED: tuple[Any, ...] = (
    *(torch, torch.cuda, torch.cuda.Event, torch.Tensor, torch.nn.functional, torch.testing),
    *(time, json, socket.socket, struct),
)


class Patched(Exception):
    """A candidate replaced a member of a module or class that is not its own."""


def members() -> dict[str, Any]:
    """The functions and classes of everything watched and of the judge's own code, by path."""
    own = [module for name, module in sys.modules.items() if name.split(".")[0] in JUDGES_OWN]
    classes = [
        value
        for module in own
        for value in vars(module).values()
        if isinstance(value, type) and value.__module__ == module.__name__
    ]
    return {
        f"{owner.__name__}.{name}": value
        for owner in (*WATCHED, *own, *classes)
        for name, value in _all_members(owner).items()
        if callable(value) or isinstance(value, property | staticmethod | classmethod)
    }


def _all_members(owner: Any) -> dict[str, Any]:
    """A module's names, or a class's with what it inherits, since one may hide the other."""
    spaces = reversed(owner.__mro__) if isinstance(owner, type) else [owner]
    return {name: value for space in spaces for name, value in vars(space).items()}


def refuse_patches(before: dict[str, Any]) -> None:
    """Compare with what `members` said before the candidate came. Raises Patched."""
    now = members()
    changed = [
        path
        for path, value in before.items()
        if now.get(path) is not value and not _is_torchs(now.get(path))
    ]
    if changed:
        raise Patched(f"replaces {', '.join(changed[:3])}; leave modules as they are")


def _is_torchs(value: Any) -> bool:
    """Whether torch itself put this there: its compiler, once imported, wraps some functions."""
    code = getattr(value, "__code__", None)
    return code is not None and code.co_filename.startswith(str(Path(torch.__file__).parent))
