"""Whether programs of one launch wait for each other: run one after the other they need not, on a
GPU they must."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

GRANULE_BITS = 16
"""Addresses are compared one by one only where a load and a store fall into the same 64 KB."""


class Race(Exception):
    """A program loads what another one stores, and nothing makes it wait."""


class Order:
    """What the programs of the launch at hand stored, and whether they said so by an atomic.

    A program may load what another stores if that one does an atomic operation behind the store,
    and it does one itself before the load: as a split sum with a ticket does, or a scan that looks
    back.
    """

    def __init__(self) -> None:
        self.begin_launch()

    def begin_launch(self) -> None:
        """No program has run."""
        self._granules: set[int] = set()
        self._told: list[Any] = []
        """Addresses that earlier programs stored to ahead of an atomic."""
        self._untold: list[Any] = []
        """The same with no atomic behind."""
        self._own: list[Any] = []
        self._own_told = 0
        self._own_granules: set[int] = set()
        self._has_asked = False
        self._inside = False

    def begin_program(self) -> None:
        """The next program; what the last one stored is another's from now on."""
        self._told += self._own[: self._own_told]
        self._untold += self._own[self._own_told :]
        self._granules |= self._own_granules
        self._own, self._own_told, self._own_granules = [], 0, set()
        self._has_asked = False

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """The running program does an atomic operation; what it loads and stores itself is that."""
        self._own_told = len(self._own)
        self._has_asked = True
        inside, self._inside = self._inside, True
        try:
            yield
        finally:
            self._inside = inside

    def store(self, addresses: Any, mask: Any) -> None:
        """The running program stores without one."""
        if self._inside:
            return
        stored = addresses[mask.astype(bool)]
        if stored.size:
            self._own.append(stored)
            self._own_granules |= _granules(stored)

    def load(self, addresses: Any, mask: Any) -> None:
        """The running program loads. Raises Race."""
        if self._inside or not self._granules or self._granules.isdisjoint(_granules(addresses)):
            return
        loaded = addresses[mask.astype(bool)]
        unsafe = self._untold if self._has_asked else [*self._untold, *self._told]
        if len(_without(_within(loaded, unsafe), self._own)):
            raise Race("loads what another program of the launch stores, and may be ahead of it")


def _granules(addresses: Any) -> set[int]:
    if not addresses.size:
        return set()
    first, last = int(addresses.min()) >> GRANULE_BITS, int(addresses.max()) >> GRANULE_BITS
    return set(range(first, last + 1)) if last - first < 4096 else set()


def _within(addresses: Any, stored: list[Any]) -> Any:
    import numpy as np

    return addresses[np.isin(addresses, np.concatenate(stored))] if stored else addresses[:0]


def _without(addresses: Any, stored: list[Any]) -> Any:
    import numpy as np

    return addresses[~np.isin(addresses, np.concatenate(stored))] if stored else addresses
