"""Memory that the judge owns: what shows that it was written to, and when it is given back."""

import time

import pytest
import torch

from beamsearch.judge.arguments import fill
from beamsearch.judge.sandbox import memory
from beamsearch.judge.sandbox.memory import (
    GUARD_BYTES,
    Buffer,
    SharedMemory,
    give_back_if_short,
)

GIB = 1 << 30
SIZES = (1, 7, 8, 4096 * 8 - 3, 4096 * 8 * 3, 4096 * 8 * 5 + 17)


def filled(size: int, spare: int = 0) -> tuple[Buffer, torch.UntypedStorage]:
    """A buffer with so many random bytes behind its guard, and the bytes."""
    data = torch.randint(0, 256, (size,), dtype=torch.uint8)
    buffer = SharedMemory("cpu").allocate(size + 2 * GUARD_BYTES + spare)
    fill(buffer, data.untyped_storage())
    return buffer, data.untyped_storage()


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("spare", [0, 4096])
def test_the_checksum_weighs_every_word_by_its_position(size: int, spare: int) -> None:
    buffer, data = filled(size, spare)
    total = sum((2 * i + 1) * word for i, word in enumerate(buffer.words().tolist()))
    assert buffer.checksum() % 2**64 == total % 2**64
    assert buffer.checksum_with(data) == buffer.checksum()
    buffer.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_byte_written_anywhere_shows(size: int) -> None:
    buffer, data = filled(size)
    written = buffer.view(torch.uint8, (buffer.size,))
    for place in (0, GUARD_BYTES - 1, GUARD_BYTES, GUARD_BYTES + size - 1, buffer.size - 1):
        written[place] ^= 1
        assert buffer.checksum() != buffer.checksum_with(data)
        written[place] ^= 1
    assert buffer.checksum() == buffer.checksum_with(data)
    buffer.close()


def test_words_that_change_places_show() -> None:
    buffer, data = filled(4096 * 8 * 3)
    words = buffer.words()
    for one, other in ((3000, 3001), (3000, 3000 + 4096), (3000, 7001)):
        before = words[one].item()
        words[one], words[other] = words[other].item(), before
        assert buffer.checksum() != buffer.checksum_with(data)
        before = words[one].item()
        words[one], words[other] = words[other].item(), before
    buffer.close()


class Held:
    """What stands in for the driver and torch's cache: how much each has, and what was asked."""

    def __init__(self) -> None:
        self.free, self.reserved, self.allocated, self.now = 50 * GIB, 8 * GIB, 1 * GIB, 100.0
        self.looked = self.emptied = 0

    def look(self, device: torch.device) -> tuple[int, int]:
        self.looked += 1
        return self.free, 80 * GIB

    def empty(self) -> None:
        self.emptied += 1


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    held = Held()
    monkeypatch.setattr(torch.cuda, "mem_get_info", held.look)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: held.reserved)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: held.allocated)
    monkeypatch.setattr(torch.cuda, "empty_cache", held.empty)
    monkeypatch.setattr(time, "monotonic", lambda: held.now)
    monkeypatch.setattr(memory, "_looked", {})
    return held


def test_memory_that_was_not_short_is_not_looked_at_for_each_call(held: Held) -> None:
    for _ in range(100):
        give_back_if_short("cuda:0")
        held.now += 0.001
    assert (held.looked, held.emptied) == (1, 0)
    give_back_if_short("cuda:1")
    assert held.looked == 2


@pytest.mark.parametrize("change", ["torch took more", "time went by"])
def test_memory_is_looked_at_again_once_it_may_be_short(held: Held, change: str) -> None:
    give_back_if_short("cuda:0")
    held.free = GIB
    held.reserved += change == "torch took more"
    held.now += 0.01 if change == "torch took more" else memory.LOOK_S
    for emptied in (1, 2):  # each time, while it is short
        give_back_if_short("cuda:0")
        assert (held.looked, held.emptied) == (1 + emptied, emptied)


def test_little_that_is_kept_is_left_where_memory_is_short(held: Held) -> None:
    held.free, held.allocated = 4 * GIB, held.reserved - GIB // 2
    give_back_if_short("cuda:0")
    assert (held.looked, held.emptied) == (1, 0)
