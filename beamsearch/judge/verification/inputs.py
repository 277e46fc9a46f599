"""Input sets that can tell right from wrong, with the oracle that only the judge sees."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from beamsearch.errors import ProblemError
from beamsearch.judge.arguments import Layout, _storages, rearranged
from beamsearch.judge.sandbox.memory import GUARD_BYTES, Buffer, SharedMemory
from beamsearch.judge.sandbox.protocol import describe_tensor, encode_arguments
from beamsearch.judge.verification.conditioning import Source, Sway
from beamsearch.judge.verification.handout import Handout, _close, _settle, fill
from beamsearch.judge.verification.input_set import ORDER, InputSet, derive_seed
from beamsearch.judge.verification.negative_controls import (
    CannotTell,
    defined_distributions,
    expect,
)
from beamsearch.judge.verification.oracle import Expected, find_updates, oracle_dtype, run_oracle
from beamsearch.judge.verification.tolerance import Difference, compare
from beamsearch.problem.input_values import NOT_A_NUMBER, Distribution
from beamsearch.problem.instance import Instance, instantiate
from beamsearch.problem.problem import Problem

if TYPE_CHECKING:
    import torch
MEMORY_SHARE = 3
"""Sets take a third of a GPU's memory at most; one beyond that is made anew each time."""
KEPT_SWAY = 1 << 24
"""Outputs of at most so many elements keep how far they move: two bytes each."""
ALWAYS_KEPT = 2
"""Sets that stay in memory however large they are: timing rotates through them."""


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
        built = InputSet(label, self.problem, seed, distribution, expected, self._updates, instance)
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


def _without_oracles(expected: Sequence[Expected]) -> list[Expected]:
    """The same with the oracles' shapes alone."""
    return [replace(item, oracle=item.oracle.to("meta")) for item in expected]
