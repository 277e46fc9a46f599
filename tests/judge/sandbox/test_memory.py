"""Memory that the judge owns: what shows that it was written to."""

import pytest
import torch

from beamsearch.judge.arguments import fill
from beamsearch.judge.sandbox.memory import GUARD_BYTES, Buffer, SharedMemory

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
    memory = buffer.view(torch.uint8, (buffer.size,))
    for place in (0, GUARD_BYTES - 1, GUARD_BYTES, GUARD_BYTES + size - 1, buffer.size - 1):
        memory[place] ^= 1
        assert buffer.checksum() != buffer.checksum_with(data)
        memory[place] ^= 1
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
