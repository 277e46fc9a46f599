"""Memory that the judge owns and its processes map, by descriptors that go over their sockets."""

from __future__ import annotations

import base64
import ctypes
import fcntl
import itertools
import os
import resource
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from beamsearch.gpu.driver import DriverError, Mapping, create, open_descriptor
from beamsearch.judge.sandbox.protocol import Worker, open_tensor

Answer = dict[str, Any]
Places = list[dict[str, Any]]

GUARD_BYTES = 1 << 14
"""Not-a-number before and behind every input: what reads past an end and uses it, shows; what
writes there has changed its inputs."""
_ROW = 1 << 12
"""Words of 8 bytes in a row of what is summed: sums of rows and of columns are all it takes."""


SHORT = 8
"""Memory is short where less than one part in so many of a GPU's is free."""
MUCH = 4
"""What torch keeps without using it is much where it is more than one part in so many of what is
free. To give back less gains little, and memory is dear to ask for anew: 1 to 4 ms a GiB."""


LITTLE = 64 << 20
"""Bytes that torch may keep all the same: what is asked for at shrunk shapes. While other processes
start on the host's GPUs, to ask for the least takes 6 ms, and up to 100 (two H200, driver 580)."""


def give_back(device: str) -> None:
    """Let other processes have what torch keeps in its cache, unless it is little."""
    if device != "cpu" and torch.cuda.memory_reserved(device) > (
        torch.cuda.memory_allocated(device) + LITTLE
    ):
        torch.cuda.empty_cache()


LOOK_S = 0.2
"""Seconds for which memory that was enough is taken to be enough still, where torch took no more
since: to look takes 0.1 ms, and 9 ms, up to 600, while another GPU of the host is profiled
(two H200, driver 580)."""
_looked: dict[str, tuple[float, int]] = {}
"""Device -> when its memory was not short, and what torch had of it then, in bytes."""


def give_back_if_short(device: str) -> None:
    """Let other processes have what torch keeps in its cache, where memory is short and it is
    much."""
    has = torch.cuda.memory_reserved(device)
    kept, now = has - torch.cuda.memory_allocated(device), time.monotonic()
    looked, had = _looked.get(device, (0.0, 0))
    if kept == 0 or (now < looked + LOOK_S and has <= had):
        return
    free, total = torch.cuda.mem_get_info(torch.device(device))
    if free >= total // SHORT:
        _looked[device] = now, has
    elif kept > free // MUCH:
        torch.cuda.empty_cache()


class SharedMemory:
    """Gives out memory that another process can map, on one device.

    Without a GPU it is anonymous shared memory, on a GPU memory of the driver's own: both are
    descriptors, which work for a process of any user. Where the driver has no such memory, CUDA's
    older IPC handles serve, between processes of one user only.
    """

    _ids = itertools.count()

    def __init__(self, device: str) -> None:
        self.device = device
        self._has_descriptors = True
        self._pool: Any = None
        # A model has hundreds of tensors, and each input set a descriptor for each of them.
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))

    def allocate(self, size: int) -> Buffer:
        """A buffer of at least `size` bytes, in whole words."""
        size = max(8, -(-size // 8) * 8)
        place: dict[str, Any] = {"id": next(self._ids), "bytes": size}
        if self.device == "cpu":
            descriptor = os.memfd_create("beamsearch", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
            os.truncate(descriptor, size)
            # Whoever shrank it would kill the judge.
            seals = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
            fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
            mapped: Any = torch.UntypedStorage.from_file(f"/proc/self/fd/{descriptor}", True, size)
            return Buffer(mapped, place | {"memory": "file", "fd": descriptor})
        if self._has_descriptors:
            try:
                mapping, descriptor = create(size, torch.device(self.device).index)
            except DriverError:
                self._has_descriptors = False
            else:  # whole pages: nothing of the last is left for others to use
                told = place | {"memory": "driver", "fd": descriptor, "bytes": mapping.size}
                return Buffer(mapping.tensor().untyped_storage(), told, mapping.close)
        return self._allocate_ipc(size, place)

    def allocate_for(self, storages: Iterable[torch.UntypedStorage]) -> list[Buffer]:
        """A buffer for each, guards included; or none of them where one finds no memory."""
        made: list[Buffer] = []
        try:
            for storage in storages:
                made.append(self.allocate(storage.nbytes() + 2 * GUARD_BYTES))
        except torch.OutOfMemoryError:
            close_all(made)
            raise
        return made

    def _allocate_ipc(self, size: int, place: dict[str, Any]) -> Buffer:
        """From a pool of its own: a mapped allocation is mapped whole, and nothing that candidates
        must not see may lie in it."""
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
        # Children are killed and count nothing down: torch would keep the memory for them.
        storages: Any = torch.UntypedStorage
        release = partial(storages._release_ipc_counter, *parts[4:6], device=data.device)
        return Buffer(storage, place | {"memory": "ipc", "handle": handle}, release)


@dataclass(eq=False)
class Buffer:
    """One piece of shared memory."""

    storage: torch.UntypedStorage
    """It may be larger than the buffer."""
    place: dict[str, Any]
    """How another process maps it."""
    release: Callable[[], object] | None = None

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self.place["bytes"])

    def view(self, dtype: torch.dtype, shape: Any) -> torch.Tensor:
        """A tensor on this memory."""
        size = torch.Size(shape).numel()
        tensor = torch.empty(0, dtype=dtype, device=self.storage.device)
        return tensor.set_(self.storage, 0, (size,), (1,)).view(shape)

    def words(self) -> torch.Tensor:
        """The memory as 64-bit words."""
        return self.view(torch.int64, (self.size // 8,))

    def poison(self) -> None:
        """All bits set: NaN in every floating-point type, -1 in integers."""
        self.words().fill_(-1)

    def checksum(self) -> int:
        """A sum over the words in which every position has its own weight."""
        return _weighted(self.words(), 0)

    def checksum_with(self, source: torch.UntypedStorage) -> int:
        """What `checksum` is where `source` lies behind the guard and every byte around it has all
        bits set."""
        data = torch.empty(0, dtype=torch.uint8, device=source.device)
        data.set_(source, 0, (source.nbytes(),), (1,))
        first, whole = GUARD_BYTES // 8, data.numel() // 8
        rest = torch.full((8,), 255, dtype=torch.uint8, device=data.device)
        rest[: data.numel() % 8] = data[whole * 8 :]
        last = first + whole
        total = _weighted(data[: whole * 8].view(torch.int64), first)
        total += _weighted(rest.view(torch.int64), last)
        # The words of the guards are -1, and their weights are odd numbers in turn.
        total -= first**2 + (self.size // 8) ** 2 - (last + 1) ** 2
        return ctypes.c_int64(total).value

    def close(self) -> None:
        """Give the memory back; nobody may have it mapped any more."""
        if self.release is not None:
            torch.cuda.synchronize(self.storage.device)
            self.release()
            self.release = None
        self.storage = torch.empty(0).untyped_storage()
        descriptor = self.place.pop("fd", None)
        if descriptor is not None:
            os.close(descriptor)


class MappingWorker(Worker):
    """A worker that has memory of the judge's."""

    def __init__(self) -> None:
        self.device = "cpu"
        self._storages: dict[int, torch.UntypedStorage] = {}
        self._mappings: list[Mapping] = []
        # Bound here so that a candidate that patches modules patches nothing we use.
        self._plain = (torch.Tensor, torch.nn.Parameter)
        self._copy: Any = torch._C.TensorBase.copy_
        torch.set_num_threads(1)

    def do_open(self, device: int) -> Answer:
        """Take a GPU, before any candidate is there."""
        self.device = f"cuda:{device}"
        torch.cuda.set_device(device)
        torch.zeros(1, device=self.device)  # the context
        return {}

    def do_map(self, places: Places) -> Answer:
        """Map memory whose descriptors came along, and close them."""
        for place, descriptor in zip(places, self.descriptors, strict=True):
            size, index = place["bytes"], torch.device(self.device).index
            if place["memory"] == "driver":
                self._mappings.append(open_descriptor(descriptor, size, index))
                storage: Any = self._mappings[-1].tensor().untyped_storage()
            else:
                path = f"/proc/self/fd/{descriptor}"
                storage = torch.UntypedStorage.from_file(path, True, size)
            self._storages[place["id"]] = storage
            os.close(descriptor)
        return {}

    def do_unmap(self) -> Answer:
        """Give up all memory of the judge's; nothing uses it any more."""
        self.wait()
        self._storages.clear()
        for mapping in self._mappings:
            mapping.close()
        self._mappings.clear()
        return {}

    def storage(self, place: dict[str, Any]) -> torch.UntypedStorage:
        """A storage of the judge's; memory with a CUDA IPC handle is mapped when first wanted."""
        key = place["id"]
        if key not in self._storages:
            handle = [
                base64.b64decode(x["b64"]) if isinstance(x, dict) else x for x in place["handle"]
            ]
            opened: Any = torch.UntypedStorage._new_shared_cuda(*handle)
            self._storages[key] = opened
        return self._storages[key]

    def wait(self) -> None:
        """Until everything that this process has given the GPU is done, on whatever stream."""
        if self.device != "cpu":
            torch.cuda.synchronize()

    def _hand_over(self, results: Sequence[Any], outputs: Places, storages: Places) -> Answer:
        """Copy results into the judge's memory; what each of them was. One that is no plain tensor
        is described by its type alone: it could do its work while it is copied."""
        known = {storage.data_ptr() for storage in self._storages.values()}
        mapped = [self.storage(place) for place in storages]
        described: Places = []
        for index, value in enumerate(results):
            if type(value) not in self._plain:
                described.append({"type": type(value).__name__})
                continue
            told = {
                "type": "tensor",
                "shape": list(value.shape),
                "stride": list(value.stride()),
                "dtype": str(value.dtype).removeprefix("torch."),
                "device": str(value.device),
                "aliases_input": value.untyped_storage().data_ptr() in known,
            }
            described.append(told)
            place = outputs[index] if index < len(outputs) else None
            fits = place and (told["shape"], told["dtype"]) == (place["size"], place["dtype"])
            if place and fits and value.device.type == torch.device(self.device).type:
                with torch.inference_mode():
                    self._copy(open_tensor(place, mapped, self.device), value)
        self.wait()
        return {"results": described}


def close_all(buffers: Iterable[Buffer]) -> None:
    """Give back the memory of each."""
    for buffer in buffers:
        buffer.close()


def _weighted(words: torch.Tensor, first: int) -> int:
    """The sum of each word times 2i + 1, i being its position counted from `first`, in 64 bits. It
    is linear in i, so that sums of rows and columns do: the words are read twice, none written."""

    def weights(start: int, count: int) -> torch.Tensor:
        return torch.arange(start, start + 2 * count, 2, device=words.device)

    rows = words.numel() // _ROW
    left = words[rows * _ROW :]
    total = (left * weights(2 * (first + rows * _ROW) + 1, left.numel())).sum()
    if rows:
        block = words[: rows * _ROW].view(rows, _ROW)
        total += (block.sum(0) * weights(2 * first + 1, _ROW)).sum()
        total += (block.sum(1) * weights(0, rows)).sum() * _ROW
    return int(total.item())
