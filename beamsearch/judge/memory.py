"""Memory that the judge owns and candidates map: files without a GPU, CUDA IPC with one."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

PIECE = 1 << 25
"""Words of 8 bytes looked at in one go, to bound what a checksum needs beside the data."""


class SharedMemory:
    """Gives out memory that another process can map, on one device.

    On a GPU everything shared comes from a pool of its own: a mapped CUDA allocation is mapped
    whole, and nothing that candidates must not see may lie in it. CUDA IPC works between processes
    of one user only.
    """

    def __init__(self, device: str, folder: Path) -> None:
        self.device = device
        self._folder = folder
        self._names = itertools.count()
        self._pool: Any = None

    def allocate(self, size: int) -> Buffer:
        """A buffer of at least `size` bytes, in whole words."""
        import torch

        size = max(8, -(-size // 8) * 8)
        if self.device == "cpu":
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"buffer-{next(self._names)}"
            mapped: Any = torch.UntypedStorage.from_file(str(path), True, size)
            return Buffer(mapped, {"file": str(path), "bytes": size}, path)
        if self._pool is None:
            self._pool = torch.cuda.MemPool()
        with torch.cuda.use_mem_pool(self._pool, torch.device(self.device)):
            data = torch.empty(size, dtype=torch.uint8, device=self.device)
        storage: Any = data.untyped_storage()
        # Shared once: every child maps the same handle, and the judge keeps the memory.
        parts = storage._share_cuda_()
        handle = [
            {"b64": base64.b64encode(part).decode()} if isinstance(part, bytes) else part
            for part in parts
        ]
        return Buffer(storage, {"cuda": handle}, counter=(parts[4], parts[5]))


class Buffer:
    """One piece of shared memory. `place` tells another process how to map it."""

    def __init__(
        self,
        storage: torch.UntypedStorage,
        place: dict[str, Any],
        path: Path | None = None,
        counter: tuple[bytes, int] | None = None,
    ) -> None:
        self.storage = storage
        self.place = place
        self._path = path
        self._counter = counter

    @property
    def size(self) -> int:
        """Bytes."""
        return self.storage.nbytes()

    def view(self, dtype: torch.dtype, shape: Any) -> Any:
        """A tensor on this memory."""
        import torch

        size = torch.Size(shape).numel()
        tensor = torch.empty(0, dtype=dtype, device=self.storage.device)
        return tensor.set_(self.storage, 0, (size,), (1,)).view(shape)

    def words(self) -> torch.Tensor:
        """The memory as 64-bit words."""
        import torch

        words: torch.Tensor = self.view(torch.int64, (self.size // 8,))
        return words

    def poison(self) -> None:
        """All bits set: NaN in every floating-point type, -1 in integers."""
        self.words().fill_(-1)

    def load(self, source: torch.UntypedStorage) -> None:
        """Copy a storage's bytes in; what is left over is zero."""
        import torch

        words = self.words()
        words[-1:].zero_()
        size = source.nbytes()
        self.view(torch.uint8, (size,)).copy_(
            torch.empty(0, dtype=torch.uint8, device=source.device).set_(source, 0, (size,), (1,))
        )

    def checksum(self) -> int:
        """A sum over the words in which every position has its own weight."""
        import torch

        words = self.words()
        piece = min(PIECE, words.numel())
        weights = torch.arange(1, 2 * piece, 2, device=words.device)
        total = torch.zeros((), dtype=torch.int64, device=words.device)
        for number, part in enumerate(torch.split(words, piece)):
            total = total * 31 + (part * weights[: part.numel()]).sum() + number
        return int(total.item())

    def close(self) -> None:
        """Give the memory back; nobody may have it mapped any more."""
        import torch

        if self._path is not None:
            self._path.unlink(missing_ok=True)
        elif self._counter is not None:
            # Children are killed and count nothing down: torch would keep the memory for them.
            device = self.storage.device
            storages: Any = torch.UntypedStorage
            storages._release_ipc_counter(*self._counter, device=device)
            self._counter = None
        self.storage = torch.empty(0).untyped_storage()
