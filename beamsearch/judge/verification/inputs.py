"""Input sets that can tell right from wrong, with the oracle that only the judge sees."""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from beamsearch.errors import ProblemError
from beamsearch.judge.sandbox.memory import GUARD_BYTES, Buffer, SharedMemory
from beamsearch.judge.sandbox.protocol import describe_tensor, encode_arguments, open_tensor
from beamsearch.judge.verification.compare import Difference, compare
from beamsearch.judge.verification.conditioning import Source, Sway
from beamsearch.judge.verification.negative_controls import (
    CannotTell,
    defined_distributions,
    expect,
)
from beamsearch.judge.verification.oracle import Expected, find_updates, oracle_dtype, run_oracle
from beamsearch.problem.input_values import DISTRIBUTIONS, NOT_A_NUMBER, Distribution
from beamsearch.problem.problem import Instance, Problem, call_arguments, instantiate

if TYPE_CHECKING:
    import torch

Layout = Literal["strided", "misaligned"]

ORDER: tuple[Distribution, ...] = DISTRIBUTIONS
"""In which order sets are drawn at the true shapes: one of each."""
ALWAYS_DRAWN = 3
"""Sets at the true shapes that every kernel meets: its own inputs, normal ones, and those with
outliers, for nothing else shows statistics of a sample where samples are large. (Timed calls are on
its own inputs too, several times over.) Which of the others it meets follows from the kernel: see
`order_for`."""
MEMORY_SHARE = 3
"""Sets take a third of a GPU's memory at most; one beyond that is made anew each time."""
KEPT_SWAY = 1 << 24
"""Outputs of at most so many elements keep how far they move: two bytes each."""
ALWAYS_KEPT = 2
"""Sets that stay in memory however large they are: timing rotates through them."""


@dataclass(frozen=True)
class Handout:
    """An input set as one candidate process gets it."""

    arguments: dict[str, Any]
    storages: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    output_storages: list[dict[str, Any]]
    inputs: list[Buffer]
    results: list[Buffer]
    checksums: list[int]
    """Of the inputs, as they were handed out."""

    def changed(self) -> set[int]:
        """Numbers of the inputs' and parameters' storages that are not as they were handed out."""
        sums = zip(self.inputs, self.checksums, strict=True)
        return {number for number, (buffer, sum_) in enumerate(sums) if buffer.checksum() != sum_}

    def state(self, name: str) -> tuple[int, torch.Tensor]:
        """A parameter or buffer of the model: its storage's number, and what it holds."""
        place = self.arguments["state"][name]["tensor"]
        storages = [buffer.storage for buffer in self.inputs]
        tensor = open_tensor(place, storages, str(storages[0].device))
        return place["storage"], tensor

    def poison(self) -> None:
        """Make every result that is not written show."""
        for buffer in self.results:
            buffer.poison()
        _settle(self.results)


@dataclass
class InputSet:
    """Inputs and parameters from one seed, and what the reference makes of them."""

    label: str
    seed: int
    distribution: Distribution
    expected: list[Expected]
    """Of what `forward` returns, then of the buffers that it updates."""
    updates: tuple[str, ...] = ()
    """Names of those buffers."""
    instance: Instance | None = None
    """Kept where handouts are copied from it; on a GPU the shared memory is the only copy."""
    shared: Handout | None = None
    """On a GPU: the set in memory, none where it is made anew each time."""
    sway: Sway | None = None
    """How far rounding moves its outputs, where that was asked and is small enough to keep."""

    @property
    def returned(self) -> list[Expected]:
        """What `forward` returns."""
        return self.expected[: len(self.expected) - len(self.updates)]

    @property
    def updated(self) -> dict[str, Expected]:
        """What the buffers hold afterwards that it updates."""
        return dict(zip(self.updates, self.expected[len(self.returned) :], strict=True))

    def results(self, handout: Handout) -> list[torch.Tensor]:
        """What came back, on the judge's memory."""
        return [
            buffer.view(expected.dtype, tuple(expected.oracle.shape))
            for buffer, expected in zip(handout.results, self.returned, strict=True)
        ]


class InputSets:
    """The input sets of one problem on one device, each built when first needed.

    On a GPU as many stay in memory as fit a share of it. The others are made anew from their seeds,
    oracle included, in one piece of memory that they take turns in. Which sets there are depends on
    the seed and the problem alone.
    """

    def __init__(self, problem: Problem, device: str, memory: SharedMemory, seed: int) -> None:
        self.problem = problem
        self.device = device
        self._memory = memory
        self._seed = seed
        self._lock = threading.Lock()
        self._sets: dict[str, InputSet] = {}
        self._dropped: dict[str, str] = {}
        self._defined: tuple[Distribution, ...] | None = None
        self._wide: torch.dtype | None = None
        self._updates: tuple[str, ...] = ()
        self._result_buffers: dict[tuple[int, int], Buffer] = {}
        self._spare: list[Buffer] = []
        self._kept_bytes = 0

    @property
    def dropped(self) -> list[str]:
        """Input sets on which a wrong output would have passed, with the reason."""
        return [f"{label}: {reason}" for label, reason in self._dropped.items()]

    def draw(self, count: int, order: Sequence[Distribution] = ORDER) -> list[InputSet]:
        """The first sets in this order that can tell right from wrong; of what can, more seeds
        where those are too few.

        Raises ProblemError where there is none, OutOfMemoryError where one finds no memory.
        """
        with self._lock:
            drawn: list[InputSet] = []
            tried: Counter[Distribution] = Counter()
            waiting = list(order)
            while waiting and len(drawn) < count:
                distribution = waiting.pop(0)
                tried[distribution] += 1
                found = self._find(f"{distribution} #{tried[distribution]}", distribution)
                if found is not None:
                    drawn.append(found)
                if not waiting and sum(tried.values()) < 3 * count:
                    waiting = [inputs.distribution for inputs in drawn]
            if not drawn:
                raise ProblemError(
                    f"{self.problem.name} cannot tell right from wrong in {self.problem.dtype}: "
                    f"{'; '.join(self.dropped)}. Give it inputs whose outputs differ by more than "
                    "their rounding, or another --dtype."
                )
            return drawn

    def _find(self, label: str, distribution: Distribution) -> InputSet | None:
        """The set of that name, built where it is not there yet; none where it proves nothing."""
        if label in self._dropped:
            return None
        if label in self._sets:
            return self._sets[label]
        if self._defined is None:
            self._defined = defined_distributions(self.problem)
        if distribution not in self._defined:
            self._dropped[label] = "the reference makes no proper number of such inputs"
            return None
        try:
            self._sets[label] = self._build(label, distribution)
        except CannotTell as reason:
            self._dropped[label] = str(reason)
        finally:
            self._release()
        return self._sets.get(label)

    def _build(self, label: str, distribution: Distribution) -> InputSet:
        seed = derive_seed(self._seed, self.problem, label)
        is_first, wide = self._wide is None, self._wide or oracle_dtype(self.problem, self.device)
        instance = self._instance(seed, distribution)
        if is_first:
            self._wide, self._updates = wide, find_updates(instance)
            instance = replace(instance, updates=self._updates)
        expected = expect(instance, self._others(seed, distribution), wide, distribution)
        built = InputSet(label, seed, distribution, expected, self._updates, instance)
        if self.device == "cpu":
            return built
        built.instance = None
        size = sum(storage.nbytes() for storage in _storages(instance).values())
        size += sum(item.oracle.nbytes for item in expected)
        if len(self._sets) < ALWAYS_KEPT or self._kept_bytes + size <= self._budget():
            self._kept_bytes += size
            built.shared = self._hand_out(built, instance)
        else:
            built.expected = _without_oracles(expected)
        return built

    def _budget(self) -> int:
        import torch

        return torch.cuda.mem_get_info(torch.device(self.device))[1] // MEMORY_SHARE

    def _is_short(self) -> bool:
        """Whether candidates may miss the memory that is cached here."""
        import torch

        free, total = torch.cuda.mem_get_info(torch.device(self.device))
        return free < total // MEMORY_SHARE

    def _release(self) -> None:
        """What the oracle left over belongs to the candidates."""
        import torch

        if self.device != "cpu":
            torch.cuda.empty_cache()

    @contextmanager
    def handout(self, inputs: InputSet, layout: Layout | None = None) -> Iterator[Handout]:
        """The set as one process may have it; repaired or thrown away afterwards.

        A layout other than the plain one is for small sets: it is a copy of its own.
        """
        if inputs.shared is not None and layout is None:
            yield inputs.shared
        elif inputs.instance is None and layout is None:
            yield from self._made_anew(inputs)
        else:
            instance = inputs.instance or self._instance_of(inputs)
            handout = self._hand_out(inputs, rearranged(instance, layout) if layout else instance)
            try:
                yield handout
            finally:
                shared = self._result_buffers.values()
                _close([*handout.inputs, *(b for b in handout.results if b not in shared)])

    def _made_anew(self, inputs: InputSet) -> Iterator[Handout]:
        """A set that is not in memory, for as long as it is needed."""
        instance = self._instance_of(inputs)
        assert self._wide is not None
        try:
            oracles = run_oracle(instance, instance.inputs, self._wide)
            inputs.expected = [
                replace(item, oracle=oracle)
                for item, oracle in zip(inputs.expected, oracles, strict=True)
            ]
            handout = self._hand_out(inputs, instance, self._spare)
            self._spare = handout.inputs
            del instance, oracles
            self._release()
            yield handout
        finally:
            inputs.expected = _without_oracles(inputs.expected)

    def _instance(self, seed: int, distribution: Distribution) -> Instance:
        made = instantiate(self.problem, self.device, seed, distribution)
        return replace(made, updates=self._updates)

    def _instance_of(self, inputs: InputSet) -> Instance:
        return self._instance(inputs.seed, inputs.distribution)

    def _others(self, seed: int, distribution: Distribution) -> tuple[Any, ...]:
        """Inputs of another seed, for outputs that are surely wrong."""
        return instantiate(self.problem, self.device, seed + 1, distribution).inputs

    def with_not_a_number(self) -> InputSet | None:
        """Inputs a few of which are no numbers; none where the operation takes no such thing."""
        with self._lock:
            return self._find(f"{NOT_A_NUMBER} #1", NOT_A_NUMBER)

    def compare(self, inputs: InputSet, index: int, result: torch.Tensor) -> Difference:
        """An output of a set against its oracle. What is outside the tolerance is looked at again,
        by how far rounding moves the outputs of these very inputs; not where they are whole
        numbers, which are exact and whose ties a rounding would break.

        Raises CannotTell where the set turns out to prove nothing, which drops it.
        """
        import torch

        expected = inputs.expected[index]
        plain = compare(result, expected.oracle, expected.scale)
        if plain.passed or inputs.distribution in ("ties", NOT_A_NUMBER):
            return plain
        sway = inputs.sway or Sway(self._source(inputs))
        if sum(item.oracle.numel() for item in inputs.expected) <= KEPT_SWAY:
            inputs.sway = sway
        try:
            return sway.reconsider(plain, result, index, inputs.expected)
        except torch.OutOfMemoryError:  # the tolerance alone decides
            return plain
        except CannotTell as reason:
            self._dropped[inputs.label] = f"where rounding is allowed for, {reason}"
            raise
        finally:
            self._release()

    def proves(self, inputs: InputSet) -> bool:
        """Whether the set can still tell right from wrong."""
        return inputs.label not in self._dropped

    def _source(self, inputs: InputSet) -> Source:
        assert self._wide is not None
        return Source(
            instance=lambda: inputs.instance or self._instance_of(inputs),
            other_inputs=lambda: self._others(inputs.seed, inputs.distribution),
            wide=self._wide,
            dtype=self.problem.dtype,
            seed=inputs.seed,
        )

    def repair(self, inputs: InputSet) -> None:
        """Put back what a candidate wrote into shared inputs."""
        if inputs.shared is None:
            return
        storages = _storages(self._instance_of(inputs))
        for buffer, storage in zip(inputs.shared.inputs, storages.values(), strict=True):
            fill(buffer, storage)
        _settle(inputs.shared.inputs)

    def renew(self, inputs: InputSet, seed: int | None = None, *, oracle: bool = True) -> None:
        """Other values in the same shared memory: from this seed, else from one that nobody can
        know. Without their `oracle`, results cannot be compared until `expect` has made it."""
        assert inputs.shared is not None
        assert self._wide is not None
        if self.device != "cpu" and self._is_short():
            self._release()
        seed = secrets.randbits(62) if seed is None else seed
        instance = self._instance(seed, inputs.distribution)
        oracles = run_oracle(instance, instance.inputs, self._wide) if oracle else []
        # Nothing above changed the set: memory may have run out.
        inputs.seed, inputs.sway = seed, None
        if oracle:
            inputs.expected = [
                replace(item, oracle=values)
                for item, values in zip(inputs.expected, oracles, strict=True)
            ]
        buffers = inputs.shared.inputs
        for buffer, storage in zip(buffers, _storages(instance).values(), strict=True):
            fill(buffer, storage)
        _settle(buffers)
        inputs.shared.checksums[:] = [buffer.checksum() for buffer in buffers]
        del instance, oracles
        if self.device != "cpu" and self._is_short():
            self._release()

    def expect(self, inputs: InputSet) -> None:
        """The oracle of values that were renewed without it, made anew from their seed."""
        assert self._wide is not None
        instance = self._instance_of(inputs)
        oracles = run_oracle(instance, instance.inputs, self._wide)
        inputs.expected = [
            replace(item, oracle=values)
            for item, values in zip(inputs.expected, oracles, strict=True)
        ]
        del instance, oracles
        if self.device != "cpu" and self._is_short():
            self._release()

    def mend(self) -> None:
        """Repair every set in memory that is not what it was: a candidate that writes outside its
        tensors may meet sets that it was never given."""
        with self._lock:
            for inputs in self._sets.values():
                if inputs.shared is not None and inputs.shared.changed():
                    self.repair(inputs)

    def _hand_out(
        self, inputs: InputSet, instance: Instance, buffers: Sequence[Buffer] = ()
    ) -> Handout:
        """An instance's values in shared memory: in these buffers, or in new ones."""
        storages = _storages(instance)
        buffers = list(buffers) or [
            self._memory.allocate(storage.nbytes() + 2 * GUARD_BYTES)
            for storage in storages.values()
        ]
        for buffer, storage in zip(buffers, storages.values(), strict=True):
            fill(buffer, storage)
        _settle(buffers)
        results, outputs = [], []
        for index, expected in enumerate(inputs.returned):
            size = expected.oracle.numel() * expected.dtype.itemsize
            results.append(self._result_buffer(index, size))
            view = results[-1].view(expected.dtype, tuple(expected.oracle.shape))
            outputs.append(describe_tensor(view, index))
        return Handout(
            arguments=self._encode(instance, storages),
            storages=[buffer.place for buffer in buffers],
            outputs=outputs,
            output_storages=[buffer.place for buffer in results],
            inputs=buffers,
            results=results,
            checksums=[buffer.checksum() for buffer in buffers],
        )

    def _encode(
        self, instance: Instance, storages: dict[int, torch.UntypedStorage]
    ) -> dict[str, Any]:
        places = {pointer: index for index, pointer in enumerate(storages)}

        def number(tensor: torch.Tensor) -> int:
            return places[tensor.untyped_storage().data_ptr()]

        try:
            return encode_arguments(instance.arguments, number, GUARD_BYTES)
        except TypeError as error:
            raise ProblemError(f"{self.problem.name}: {error}") from error

    def _result_buffer(self, index: int, size: int) -> Buffer:
        """Memory for a result: its own per handout on the CPU, one for all sets on a GPU."""
        if self.device == "cpu":
            return self._memory.allocate(size)
        key = (index, size)
        if key not in self._result_buffers:
            self._result_buffers[key] = self._memory.allocate(size)
        return self._result_buffers[key]

    def close(self) -> None:
        """Give back the shared memory and the oracles; no candidate may be alive."""
        with self._lock:
            for inputs in self._sets.values():
                _close(inputs.shared.inputs if inputs.shared else [])
            _close([*self._result_buffers.values(), *self._spare])
            self._sets, self._result_buffers, self._spare = {}, {}, []
            self._kept_bytes = 0
        self._release()


def order_for(key: str, seed: int) -> tuple[Distribution, ...]:
    """In which order one kernel meets the distributions: what follows the fixed ones is shuffled by
    the kernel's key and the judge's seed.

    A judgement then costs a few sets, no kernel is made for the few, and the kernels of a run meet
    them all; a thorough judgement draws as many as there are.
    """
    first, rest = ORDER[:ALWAYS_DRAWN], ORDER[ALWAYS_DRAWN:]
    hashed = {name: hashlib.sha256(f"{seed}/{key}/{name}".encode()).digest() for name in rest}
    return (*first, *sorted(rest, key=hashed.__getitem__))


def meta_arguments(problem: Problem, layout: Layout | None = None) -> dict[str, Any]:
    """The call's arguments at the problem's shapes, on no memory at all; numbered as in a handout,
    and laid out as in one."""
    instance = instantiate(problem, "meta")
    numbers: dict[int, int] = {}

    def number(tensor: torch.Tensor) -> int:
        return numbers.setdefault(tensor.untyped_storage()._cdata, len(numbers))

    laid_out = rearranged(instance, layout) if layout else instance
    return encode_arguments(laid_out.arguments, number)


def derive_seed(seed: int, problem: Problem, label: str) -> int:
    """The seed of an input set: from the run's, the problem's name, dtype and sizes.

    63 bits, so that it is found by no search over the values that a candidate gets to see.
    """
    sizes = sorted(problem.sizes.items())
    text = f"{seed}/{problem.name}/{problem.dtype}/{sizes}/{label}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]) >> 1


def rearranged(instance: Instance, layout: Layout) -> Instance:
    """The same values in inputs of another layout: every second element of a wider tensor, or one
    element past an aligned address."""
    import torch

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        if layout == "strided" and tensor.dim():
            wide = tensor.new_zeros((*tensor.shape[:-1], 2 * tensor.shape[-1]))
            view = wide[..., ::2]
        else:
            view = tensor.new_zeros(tensor.numel() + 1)[1:].view(tensor.shape)
        return view.copy_(tensor)

    inputs = tuple(moved(v) if isinstance(v, torch.Tensor) else v for v in instance.inputs)
    arguments = call_arguments(instance.model, inputs, instance.init)
    return replace(instance, inputs=inputs, arguments=arguments)


def fill(buffer: Buffer, source: torch.UntypedStorage) -> None:
    """Copy a storage's bytes in behind the guard; every byte around them has all bits set."""
    import torch

    size = source.nbytes()
    buffer.poison()
    flat = torch.empty(0, dtype=torch.uint8, device=source.device).set_(source, 0, (size,), (1,))
    buffer.view(torch.uint8, (buffer.size,))[GUARD_BYTES : GUARD_BYTES + size].copy_(flat)


def storages_of(instance: Instance) -> list[torch.UntypedStorage]:
    """Every distinct storage a kernel may be given, as a plan numbers them."""
    return list(_storages(instance).values())


def _storages(instance: Instance) -> dict[int, torch.UntypedStorage]:
    """Every distinct storage a kernel may be given, by data pointer, in binding order."""
    import torch

    found: dict[int, torch.UntypedStorage] = {}
    for value in (*instance.arguments.values.values(), *instance.arguments.state.values()):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found.setdefault(storage.data_ptr(), storage)
    return found


def _without_oracles(expected: Sequence[Expected]) -> list[Expected]:
    """The same with the oracles' shapes alone."""
    return [replace(item, oracle=item.oracle.to("meta")) for item in expected]


def _close(buffers: Sequence[Buffer]) -> None:
    for buffer in buffers:
        buffer.close()


def _settle(buffers: Sequence[Buffer]) -> None:
    """Wait until what was written here can be seen by another process."""
    import torch

    for device in {buffer.storage.device for buffer in buffers}:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
