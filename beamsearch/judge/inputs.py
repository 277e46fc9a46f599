"""Input sets that can tell right from wrong, with the oracle that only the judge sees."""

from __future__ import annotations

import copy
import hashlib
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from beamsearch.errors import ProblemError
from beamsearch.judge.compare import TOLERANCE, Scale, compare, mean_and_spread
from beamsearch.judge.memory import Buffer, SharedMemory
from beamsearch.judge.protocol import describe_tensor, encode_arguments
from beamsearch.problem import Distribution, Instance, Problem, instantiate

if TYPE_CHECKING:
    import torch


REDRAWS = 5
"""Tries for values that tell right from wrong, of a distribution that has given such before."""


class CannotTell(Exception):
    """A wrong output would pass on this input set."""


@dataclass(frozen=True)
class Expected:
    """One output as it should be."""

    oracle: torch.Tensor
    """The reference in float32 (float64 for float64), on the very values the candidate gets."""
    dtype: torch.dtype
    scale: Scale
    may_alias: bool
    """Whether the reference itself returns memory of its inputs."""


@dataclass(frozen=True)
class Handout:
    """An input set as one candidate process gets it."""

    arguments: dict[str, Any]
    storages: list[dict[str, Any]]
    outputs: list[dict[str, Any]]
    output_storages: list[dict[str, Any]]
    inputs: list[Buffer]
    results: list[Buffer]

    def poison(self) -> None:
        """Make every result that is not written show."""
        for buffer in self.results:
            buffer.poison()
        _settle(self.results)


@dataclass
class InputSet:
    """Inputs and parameters from one seed, and what the reference makes of them."""

    label: str
    problem: Problem
    seed: int
    distribution: Distribution
    expected: list[Expected]
    checksums: list[int]
    instance: Instance | None
    """Kept where handouts are copied from it; on a GPU the shared memory is the only copy."""
    shared: Handout | None = None

    def results(self, handout: Handout) -> list[torch.Tensor]:
        """What came back, on the judge's memory."""
        return [
            buffer.view(expected.dtype, tuple(expected.oracle.shape))
            for buffer, expected in zip(handout.results, self.expected, strict=True)
        ]

    def modified(self, handout: Handout) -> bool:
        """Whether the inputs or parameters are no longer what was handed out."""
        return [buffer.checksum() for buffer in handout.inputs] != self.checksums


class InputSets:
    """The input sets of one problem on one device, built when first needed and kept."""

    def __init__(self, problem: Problem, device: str, memory: SharedMemory, seed: int) -> None:
        self.problem = problem
        self._device = device
        self._memory = memory
        self._seed = seed
        self._lock = threading.Lock()
        self._sets: list[InputSet] | None = None
        self._result_buffers: dict[tuple[int, int], Buffer] = {}
        self.dropped: list[str] = []
        """Input sets on which a wrong output would have passed, with the reason."""

    def get(self, own: int, normal: int) -> list[InputSet]:
        """That many sets of each distribution; one that proves nothing is replaced by a normal one.

        Raises ProblemError where no set can tell right from wrong.
        """
        import torch

        with self._lock:
            if self._sets is None:
                try:
                    self._sets = self._build_all(own, normal)
                except torch.OutOfMemoryError as error:
                    raise ProblemError(
                        f"{self.problem.name} does not fit on this GPU with its oracle in float32: "
                        f"{str(error).splitlines()[0]}"
                    ) from error
                finally:
                    if self._device != "cpu":
                        torch.cuda.empty_cache()  # what is left over belongs to the candidates
            return self._sets

    def _build_all(self, own: int, normal: int) -> list[InputSet]:
        wanted: list[Distribution] = []
        wanted += ["own"] * own
        wanted += ["normal"] * (normal + own)  # the last of them only in the place of others
        sets: list[InputSet] = []
        for number, distribution in enumerate(wanted, start=1):
            if len(sets) == own + normal:
                break
            try:
                sets.append(self._build(number, distribution))
            except CannotTell as reason:
                self.dropped.append(f"{distribution} #{number}: {reason}")
        if not sets:
            raise ProblemError(
                f"{self.problem.name} cannot tell right from wrong in {self.problem.dtype}: "
                f"{'; '.join(self.dropped)}. Give it inputs whose outputs differ by more than "
                "their rounding, or another --dtype."
            )
        return sets

    def _build(self, number: int, distribution: Distribution) -> InputSet:
        seed = derive_seed(self._seed, self.problem, number)
        instance = instantiate(self.problem, self._device, seed, distribution)
        other = instantiate(self.problem, self._device, seed + 1, distribution).inputs
        expected = expect(instance, other)
        built = InputSet(
            label=f"{distribution} #{number}",
            problem=self.problem,
            seed=seed,
            distribution=distribution,
            expected=expected,
            checksums=[],
            instance=instance,
        )
        handout = self._hand_out(built, instance)
        built.checksums = [buffer.checksum() for buffer in handout.inputs]
        if self._device == "cpu":
            self._close(handout)
        else:
            built.shared, built.instance = handout, None
        return built

    @contextmanager
    def handout(self, inputs: InputSet) -> Iterator[Handout]:
        """The set as one process may have it; repaired or thrown away afterwards."""
        if inputs.shared is not None:
            yield inputs.shared
            return
        assert inputs.instance is not None
        handout = self._hand_out(inputs, inputs.instance)
        try:
            yield handout
        finally:
            self._close(handout)

    def repair(self, inputs: InputSet) -> None:
        """Put back what a candidate wrote into shared inputs."""
        if inputs.shared is None:
            return
        instance = instantiate(self.problem, self._device, inputs.seed, inputs.distribution)
        storages = _storages(instance)
        for buffer, storage in zip(inputs.shared.inputs, storages.values(), strict=True):
            buffer.load(storage)
        _settle(inputs.shared.inputs)

    def refresh(self, inputs: InputSet) -> None:
        """New values in the same shared memory, from a seed that nobody knows, and their oracle.

        Where values cannot tell right from wrong, others are drawn. Raises ProblemError.
        """
        assert inputs.shared is not None
        for _ in range(REDRAWS):
            seed = secrets.randbits(31)
            instance = instantiate(self.problem, self._device, seed, inputs.distribution)
            other = instantiate(self.problem, self._device, seed + 1, inputs.distribution).inputs
            try:
                inputs.expected = expect(instance, other)
            except CannotTell:
                continue
            inputs.seed = seed
            for buffer, storage in zip(
                inputs.shared.inputs, _storages(instance).values(), strict=True
            ):
                buffer.load(storage)
            _settle(inputs.shared.inputs)
            inputs.checksums = [buffer.checksum() for buffer in inputs.shared.inputs]
            return
        raise ProblemError(f"{self.problem.name}: no new {inputs.distribution} inputs tell enough")

    def _hand_out(self, inputs: InputSet, instance: Instance) -> Handout:
        storages = _storages(instance)
        buffers = []
        for storage in storages.values():
            buffer = self._memory.allocate(storage.nbytes())
            buffer.load(storage)
            buffers.append(buffer)
        _settle(buffers)
        places = {pointer: index for index, pointer in enumerate(storages)}
        try:
            arguments = encode_arguments(
                instance.arguments, lambda tensor: places[tensor.untyped_storage().data_ptr()]
            )
        except TypeError as error:
            raise ProblemError(f"{self.problem.name}: {error}") from error
        results, outputs = [], []
        for index, expected in enumerate(inputs.expected):
            size = expected.oracle.numel() * expected.dtype.itemsize
            buffer = self._result_buffer(index, size)
            results.append(buffer)
            view = buffer.view(expected.dtype, tuple(expected.oracle.shape))
            outputs.append(describe_tensor(view, index))
        return Handout(
            arguments=arguments,
            storages=[buffer.place for buffer in buffers],
            outputs=outputs,
            output_storages=[buffer.place for buffer in results],
            inputs=buffers,
            results=results,
        )

    def _result_buffer(self, index: int, size: int) -> Buffer:
        """Memory for a result: its own per handout on the CPU, one for all sets on a GPU."""
        if self._device == "cpu":
            return self._memory.allocate(size)
        key = (index, size)
        if key not in self._result_buffers:
            self._result_buffers[key] = self._memory.allocate(size)
        return self._result_buffers[key]

    def close(self) -> None:
        """Give back the shared memory and the oracles; no candidate may be alive."""
        import torch

        with self._lock:
            for inputs in self._sets or []:
                for buffer in inputs.shared.inputs if inputs.shared else []:
                    buffer.close()
            for buffer in self._result_buffers.values():
                buffer.close()
            self._sets, self._result_buffers = None, {}
        if self._device != "cpu":
            torch.cuda.empty_cache()

    def _close(self, handout: Handout) -> None:
        for buffer in (*handout.inputs, *handout.results):
            buffer.close()


def meta_arguments(problem: Problem) -> dict[str, Any]:
    """The call's arguments at the problem's shapes, on no memory at all."""
    numbers: dict[int, int] = {}

    def number(tensor: torch.Tensor) -> int:
        return numbers.setdefault(id(tensor), len(numbers))

    return encode_arguments(instantiate(problem, "meta").arguments, number)


def derive_seed(seed: int, problem: Problem, number: int) -> int:
    """The seed of an input set: from the run's, the problem's name, dtype and sizes."""
    sizes = sorted(problem.sizes.items())
    text = f"{seed}/{problem.name}/{problem.dtype}/{sizes}/{number}"
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) >> 1


def expect(instance: Instance, other_inputs: tuple[Any, ...]) -> list[Expected]:
    """The oracle and what errors are measured by. Raises CannotTell, ProblemError."""
    import torch

    own = as_outputs(_run_reference(instance.reference))
    pointers = {
        t.untyped_storage().data_ptr() for t in instance.inputs if isinstance(t, torch.Tensor)
    }
    with torch.inference_mode(), _full_precision():
        model = copy.deepcopy(instance.model)
        wide = _widen(instance.model)
        model = model.to(wide) if wide is not None else model
        oracles = as_outputs(_run_reference(lambda: model(*_cast_all(instance.inputs))))
        others = as_outputs(_run_reference(lambda: model(*_cast_all(other_inputs))))
    expected = []
    for value, oracle, other in zip(own, oracles, others, strict=True):
        expected.append(
            Expected(
                oracle=oracle.contiguous(),
                dtype=value.dtype,
                scale=_scale(value, oracle, other),
                may_alias=value.untyped_storage().data_ptr() in pointers,
            )
        )
        _check_controls(expected[-1], other)
    return expected


def _run_reference(call: Callable[[], Any]) -> Any:
    """The reference's result. Raises ProblemError where it fails, OutOfMemoryError as it is."""
    import torch

    try:
        return call()
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        raise ProblemError(f"the reference fails: {type(error).__name__}: {error}") from error


def _scale(value: torch.Tensor, oracle: torch.Tensor, other: torch.Tensor) -> Scale:
    name = str(value.dtype).removeprefix("torch.")
    _, spread = mean_and_spread(oracle)
    if oracle.numel() == 1:  # one number has no spread but what other inputs make of it
        spread = float((oracle - other).abs())
    if not value.is_floating_point():
        return Scale(spread=spread, noise=0.0, tolerance=0.0)
    exact = Scale(spread=spread or 1.0, noise=0.0, tolerance=0.0)
    own = compare(value, oracle, exact)
    return Scale(spread=spread, noise=own.relative_rms * exact.spread, tolerance=TOLERANCE[name])


def _check_controls(expected: Expected, other: torch.Tensor) -> None:
    """Outputs that are surely wrong must fail. Raises CannotTell."""
    import torch

    oracle, dtype = expected.oracle, expected.dtype
    mean, _ = mean_and_spread(oracle)
    controls: dict[str, Callable[[], torch.Tensor]] = {
        "an all-zero output": lambda: torch.zeros_like(oracle, dtype=dtype),
        "the output of other inputs": lambda: other.to(dtype),
    }
    if oracle.numel() > 1:
        controls["a constant output"] = lambda: torch.full_like(oracle, mean, dtype=dtype)
    for name, make in controls.items():
        if compare(make(), oracle, expected.scale).passed:
            raise CannotTell(f"{name} would pass")


def as_outputs(result: Any) -> list[torch.Tensor]:
    """The tensors of a result: one, or several in a tuple or list. Raises ProblemError."""
    import torch

    values = list(result) if isinstance(result, tuple | list) else [result]
    if not values or not all(isinstance(value, torch.Tensor) for value in values):
        raise ProblemError("the reference must return a tensor, or a tuple of tensors")
    return values


def _widen(model: torch.nn.Module) -> torch.dtype | None:
    """The dtype of the oracle: float64 stays, everything else becomes float32."""
    import torch

    dtypes = {p.dtype for p in (*model.parameters(), *model.buffers()) if p.is_floating_point()}
    return torch.float32 if dtypes and torch.float64 not in dtypes else None


def _cast_all(values: tuple[Any, ...]) -> list[Any]:
    import torch

    half = (torch.float16, torch.bfloat16)
    return [v.float() if isinstance(v, torch.Tensor) and v.dtype in half else v for v in values]


@contextmanager
def _full_precision() -> Iterator[None]:
    """No TF32 in the oracle, whatever PyTorch would do by default."""
    import torch

    matmul = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        flags: Any = torch.backends.cudnn.flags
        with flags(enabled=True, allow_tf32=False):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul


def _storages(instance: Instance) -> dict[int, torch.UntypedStorage]:
    """Every distinct storage a kernel may be given, by data pointer, in binding order."""
    import torch

    found: dict[int, torch.UntypedStorage] = {}
    for value in (*instance.arguments.values.values(), *instance.arguments.state.values()):
        if isinstance(value, torch.Tensor):
            storage = value.untyped_storage()
            found.setdefault(storage.data_ptr(), storage)
    return found


def _settle(buffers: list[Buffer]) -> None:
    """Wait until what was written here can be seen by another process."""
    import torch

    for device in {buffer.storage.device for buffer in buffers}:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
