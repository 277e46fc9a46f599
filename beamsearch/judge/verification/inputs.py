"""Input sets that can tell right from wrong, in memory that candidates' processes map, with the
oracle that only the judge sees."""

from __future__ import annotations

import secrets
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import Any

import torch

from beamsearch.errors import ProblemError
from beamsearch.judge.arguments import (
    Layout,
    derive_seed,
    encoded,
    fill_all,
    rearranged,
    storages_of,
)
from beamsearch.judge.sandbox.memory import (
    Buffer,
    SharedMemory,
    close_all,
    give_back,
    give_back_if_short,
)
from beamsearch.judge.sandbox.protocol import describe_tensor, open_tensor
from beamsearch.judge.verification.negative_controls import (
    CannotTell,
    Sway,
    defined_distributions,
    expect,
)
from beamsearch.judge.verification.oracle import (
    Expected,
    find_updates,
    lost_in_sums,
    oracle_dtype,
    run_oracle,
)
from beamsearch.problem.input_values import DISTRIBUTIONS, Distribution
from beamsearch.problem.instance import Instance, instantiate
from beamsearch.problem.problem import Problem

MEMORY_SHARE = 6
"""Sets take a sixth of a GPU's memory at most; one beyond that is made anew each time."""
ALWAYS_STORED = 2
"""Sets that stay in memory however large they are: timing rotates through them."""


@dataclass(frozen=True)
class Handout:
    """An input set in memory that one process maps, and where its results go."""

    of: InputSet
    given: dict[str, Any]
    """What a call is bound to: `arguments`, and how their `storages` are mapped."""
    wanted: dict[str, Any]
    """Where its results go: `outputs`, and how their `storages` are mapped."""
    inputs: list[Buffer]
    results: list[Buffer]
    checksums: list[int]
    """Of the inputs, as they were handed out; of renewed ones, once their results are expected."""

    def changed(self) -> set[int]:
        """Numbers of the inputs' and parameters' storages that are not as they were handed out."""
        sums = zip(self.inputs, self.checksums, strict=True)
        return {number for number, (buffer, sum_) in enumerate(sums) if buffer.checksum() != sum_}

    def state(self, name: str) -> tuple[int, torch.Tensor]:
        """A parameter or buffer of the model: its storage's number, and what it holds."""
        place = self.given["arguments"]["state"][name]["tensor"]
        storages = [buffer.storage for buffer in self.inputs]
        return place["storage"], open_tensor(place, storages, str(storages[0].device))

    def sum_up(self, instance: Instance) -> None:
        """Take the checksums of these values, which are in the inputs or ought to be."""
        pairs = zip(self.inputs, storages_of(instance).values(), strict=True)
        self.checksums[:] = [buffer.checksum_with(storage) for buffer, storage in pairs]

    def returned(self) -> list[torch.Tensor]:
        """What came back, on the judge's memory."""
        return [
            buffer.view(expected.dtype, tuple(expected.oracle.shape))
            for buffer, expected in zip(self.results, self.of.returned, strict=True)
        ]


@dataclass(eq=False)
class InputSet:
    """Inputs and parameters from one seed, and what the reference makes of them."""

    sets: InputSets
    label: str
    seed: int
    distribution: Distribution
    expected: list[Expected]
    """Of what `forward` returns, then of the buffers that it updates."""
    instance: Instance | None
    """Where handouts are copied from it; on a GPU the shared memory is the only copy."""
    shared: Handout | None = None
    """On a GPU: the set in memory, none where it is made anew each time."""
    sway: Sway | None = field(default=None, init=False)
    """How far rounding moves its outputs, where that was asked and is small enough to store."""
    awaits_oracle: bool = field(default=False, init=False)
    """Whether its values were renewed since its oracle and checksums were made."""

    @property
    def returned(self) -> list[Expected]:
        """What `forward` returns."""
        return self.expected[: len(self.expected) - len(self.sets.updates)]

    @property
    def updated(self) -> dict[str, Expected]:
        """What the buffers hold afterwards that it updates."""
        return dict(zip(self.sets.updates, self.expected[len(self.returned) :], strict=True))

    @property
    def proves(self) -> bool:
        """Whether the set can still tell right from wrong."""
        return self.label not in self.sets.dropped

    def anew(self) -> Instance:
        """Its values, made from the seed."""
        return self.sets.instance(self.seed, self.distribution)

    @contextmanager
    def handout(self, layout: Layout | None = None) -> Iterator[Handout]:
        """The set as one process may have it; repaired or thrown away afterwards.

        A layout other than the plain one is for small sets: it is a copy of its own.
        """
        if self.shared is not None and layout is None:
            if self.awaits_oracle:
                self.expect()
            yield self.shared
            return
        sets, instance = self.sets, self.instance or self.anew()
        if self.instance is None and layout is None:  # it is in memory while it is needed
            try:
                self.expected = self._oracles(instance)
                given = sets.hand_out(self, instance, sets.spare)
                sets.spare = given.inputs
                del instance
                sets.release()
                yield given
            finally:
                self.expected = [item.without_oracle() for item in self.expected]
            return
        given = sets.hand_out(self, rearranged(instance, layout) if layout else instance)
        try:
            yield given
        finally:
            kept = sets.result_buffers.values()
            close_all(one for one in (*given.inputs, *given.results) if one not in kept)

    def _oracles(self, instance: Instance) -> list[Expected]:
        oracles = run_oracle(instance, instance.inputs, self.sets.wide)
        pairs = zip(self.expected, oracles, strict=True)
        return [replace(item, oracle=oracle) for item, oracle in pairs]

    def store(self) -> None:
        """Keep it in memory, from its seed."""
        instance = self.anew()
        self.expected = self._oracles(instance)
        self.shared = self.sets.hand_out(self, instance)

    def give_back(self) -> None:
        """Keep it in memory no longer."""
        close_all(self.shared.inputs if self.shared else ())
        self.shared = None
        self.expected = [item.without_oracle() for item in self.expected]

    def repair(self) -> None:
        """Put back what a candidate wrote into shared inputs."""
        if self.shared is not None:
            instance = self.anew()
            fill_all(self.shared.inputs, instance)
            self.shared.sum_up(instance)

    def renew(self, seed: int | None = None) -> None:
        """Other values in the same shared memory: from this seed, else from one that nobody can
        know. Results cannot be compared until `expect` has made their oracle. What torch took for
        them stays in its cache: others follow."""
        assert self.shared is not None
        new = secrets.randbits(62) if seed is None else seed
        instance = self.sets.instance(new, self.distribution)
        # Nothing above changed the set: memory may have run out.
        self.seed, self.sway, self.awaits_oracle = new, None, True
        self.expected = [item.without_oracle() for item in self.expected]
        fill_all(self.shared.inputs, instance)

    def expect(self) -> None:
        """The oracle of renewed values, and their checksums: all from their seed, whatever was done
        to the shared memory since."""
        assert self.shared is not None
        instance = self.anew()
        self.shared.sum_up(instance)
        self.expected = self._oracles(instance)
        self.awaits_oracle = False
        del instance
        self.sets.release(only_if_short=True)


class InputSets:
    """The input sets of one problem on one device, each built when first needed.

    On a GPU as many stay in memory as fit a share of it. The others are made anew from their seeds,
    oracle included, in one piece of memory that they take turns in. Which sets there are depends on
    the seed and the problem alone.
    """

    def __init__(self, problem: Problem, memory: SharedMemory, seed: int) -> None:
        self.problem = problem
        self.updates: tuple[str, ...] = ()
        """Names of the model's buffers that the reference updates."""
        self.dropped: dict[str, str] = {}
        """Label of a set on which a wrong output would have passed -> that, with the reason."""
        self.spare: list[Buffer] = []
        """What sets that are made anew take turns in."""
        self.result_buffers: dict[tuple[int, int], Buffer] = {}
        self._memory = memory
        self._device = memory.device
        self._seed = seed
        self._lock = threading.Lock()
        self._sets: dict[str, InputSet] = {}
        self._elsewhere: dict[Problem, InputSets] = {}
        self._updates_known = False
        self._stored_bytes = 0

    def at(self, problem: Problem) -> InputSets:
        """Those of the same problem at other sizes."""
        with self._lock:
            made = InputSets(problem, self._memory, self._seed)
            return self._elsewhere.setdefault(problem, made)

    @cached_property
    def wide(self) -> torch.dtype:
        """What oracles are computed in."""
        return oracle_dtype(self.problem, self._device)

    def get_ready(self) -> None:
        """Find out on the CPU which values the reference takes; no GPU is needed for it."""
        defined_distributions(replace(self.problem, sizes={}))

    def draw(self, count: int, order: Sequence[Distribution] = DISTRIBUTIONS) -> list[InputSet]:
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
                    f"{'; '.join(self.dropped.values())}. Give it inputs whose outputs differ by "
                    "more than their rounding, or another --dtype."
                )
            if self._device != "cpu" and all(inputs.shared is None for inputs in drawn):
                drawn[0].store()  # the one that was kept proves nothing, as showed since
            return drawn

    def _find(self, label: str, distribution: Distribution) -> InputSet | None:
        """The set of that name, built where it is not there yet; none where it proves nothing."""
        if label not in self.dropped and label not in self._sets:
            try:
                self._sets[label] = self._build(label, distribution)
            except CannotTell as reason:
                self.dropped[label] = f"{label}: {reason}"
            finally:
                self.release()
        return None if label in self.dropped else self._sets.get(label)

    def _build(self, label: str, distribution: Distribution) -> InputSet:
        if distribution not in defined_distributions(replace(self.problem, sizes={})):
            raise CannotTell("the reference makes no proper number of such inputs")
        seed = derive_seed(self._seed, self.problem, label)
        wide = self.wide  # by the memory that is free ahead of the values
        instance = self.instance(seed, distribution)
        others = self.instance(seed + 1, distribution).inputs
        expected = expect(instance, others, wide, distribution, lost_in_sums(self.problem))
        if self._device == "cpu":
            return InputSet(self, label, seed, distribution, expected, instance)
        made = InputSet(self, label, seed, distribution, expected, None)
        size = sum(storage.nbytes() for storage in storages_of(instance).values())
        size += sum(item.oracle.nbytes for item in expected)
        budget = torch.cuda.get_device_properties(self._device).total_memory // MEMORY_SHARE
        if len(self._sets) < ALWAYS_STORED or self._stored_bytes + size <= budget:
            made.shared = self.hand_out(made, instance)
            self._stored_bytes += size
        else:
            made.expected = [item.without_oracle() for item in expected]
        return made

    def instance(self, seed: int, distribution: Distribution) -> Instance:
        """Values from a seed, with the names of the buffers that the reference updates."""
        made = instantiate(self.problem, self._device, seed, distribution)
        if not self._updates_known:
            self.updates, self._updates_known = find_updates(made), True
        return replace(made, updates=self.updates)

    def release(self, *, only_if_short: bool = False) -> None:
        """What the oracle left over belongs to the candidates; it may stay in torch's cache while
        they do not miss it."""
        if not only_if_short:
            give_back(self._device)
        elif self._device != "cpu":
            give_back_if_short(self._device)

    def store_one(self) -> None:
        """Give back the memory of all sets but one, of the problem's own distribution where that
        proves something: from now on the others are made anew each time. No process may have them
        mapped that shall see the memory free."""
        with self._lock:
            stored = [inputs for inputs in self._sets.values() if inputs.shared is not None]
            stored.sort(key=lambda inputs: (not inputs.proves, inputs.distribution != "own"))
            for inputs in stored[1:]:
                inputs.give_back()
            close_all(self.spare)
            self.spare = []
        self.release()

    def mend(self) -> None:
        """Repair every set in memory, at other sizes too, that is not what it was: a candidate that
        writes outside its tensors may meet sets that it was never given."""
        with self._lock:
            for inputs in self._sets.values():
                if inputs.shared is not None and inputs.shared.changed():
                    inputs.repair()
            for sets in self._elsewhere.values():
                sets.mend()

    def hand_out(
        self, inputs: InputSet, instance: Instance, buffers: Sequence[Buffer] = ()
    ) -> Handout:
        """An instance's values in shared memory: in these buffers, or in new ones."""
        arguments = encoded(instance, self.problem.name)
        results, outputs = [], []
        for index, item in enumerate(inputs.returned):
            size = item.oracle.numel() * item.dtype.itemsize
            # Its own for each handout on the CPU, one for all sets on a GPU.
            buffer = self.result_buffers.get((index, size)) or self._memory.allocate(size)
            if self._device != "cpu":
                self.result_buffers[index, size] = buffer
            results.append(buffer)
            view = buffer.view(item.dtype, tuple(item.oracle.shape))
            outputs.append(describe_tensor(view, index))
        new = [] if buffers else self._memory.allocate_for(storages_of(instance).values())
        buffers = list(buffers) or new
        try:
            fill_all(buffers, instance)
            checksums = [buffer.checksum() for buffer in buffers]
        except torch.OutOfMemoryError:
            close_all(new)
            raise
        return Handout(
            of=inputs,
            given={"arguments": arguments, "storages": [buffer.place for buffer in buffers]},
            wanted={"outputs": outputs, "storages": [buffer.place for buffer in results]},
            inputs=buffers,
            results=results,
            checksums=checksums,
        )

    def close(self) -> None:
        """Give back the shared memory and the oracles; no candidate may be alive."""
        for sets in self._elsewhere.values():
            sets.close()
        with self._lock:
            stored = [inputs.shared.inputs for inputs in self._sets.values() if inputs.shared]
            close_all(chain(self.result_buffers.values(), self.spare, *stored))
            self._sets, self.result_buffers, self.spare = {}, {}, []
        self.release()
