"""A winner as a small package: an operator of PyTorch, its tests, and its place in a module."""

from __future__ import annotations

import importlib.util
import keyword
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from beamsearch.errors import UsageError
from beamsearch.export.signature import Argument, arguments_of, kernel_call, literals
from beamsearch.export.small_inputs import modes, shrunk_inputs
from beamsearch.export.winner import Winner
from beamsearch.judge.verification.oracle import find_updates
from beamsearch.judge.verification.tolerance import TOLERANCE
from beamsearch.problem.instance import Instance, instantiate
from beamsearch.records.trace import write_text

FILES = ("__init__.py", "operator.py", "reference.py", "kernel.py", "test_operator.py", "README.md")


@dataclass(frozen=True)
class Examined:
    """What a package says of its problem, beside the winner."""

    whole: Instance
    """On `meta`, at the problem's own shapes."""
    small: Instance
    """On the CPU."""
    outputs: tuple[Any, ...] | torch.Tensor
    modes: tuple[bool, ...]


def package_name(problem: str) -> str:
    """A problem's name as Python can import it: `43_Max_Pooling_3D` is `max_pooling_3d`."""
    name = re.sub(r"\W+|_+", "_", problem.lower()).strip("_")
    return re.sub(r"^[\d_]+", "", name)[:60].rstrip("_") or f"problem_{name}"


def check_name(name: str) -> None:
    """Raise UsageError where a folder of this name cannot be imported, or hides another package."""
    better = f"give --output a folder such as fast_{package_name(name)}"
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        raise UsageError(f"{name!r} is no name that Python imports; {better}")
    if importlib.util.find_spec(name) is not None:
        raise UsageError(f"{name} is the name of a package that is installed here; {better}")


def files_of(winner: Winner, name: str) -> dict[str, str]:
    """The package's files: name -> text. Raises UsageError where the winner cannot be an operator
    that is right, BeamsearchError where its problem does not run here."""
    seen = examined(winner)
    arguments = arguments_of(seen.whole)
    call = kernel_call(winner.source, seen.whole, arguments)
    words = _words(winner, name, seen, arguments) | {"kernel_call": call}
    heading = f"# The kernel of {winner.candidate.name}, a winner on {winner.problem.name}.\n"
    made = {file: _rendered(f"{file}.j2", words) for file in FILES if file[0] not in "rk"}
    made["reference.py"] = winner.problem.source
    made["kernel.py"] = heading + winner.source
    return {file: made[file] for file in FILES}


def examined(winner: Winner) -> Examined:
    """The problem, seen on shapes alone and run at small ones. Raises UsageError."""
    problem = winner.problem
    whole = instantiate(problem, "meta")
    output = whole.reference()
    outputs = list(output) if isinstance(output, tuple | list) else [output]
    if not outputs or not all(isinstance(one, torch.Tensor) for one in outputs):
        raise UsageError(f"{problem.name} returns something other than tensors: no operator does")
    for path, part in whole.model.named_modules():
        for name, value in vars(part).items():
            if isinstance(value, torch.Tensor):
                raise UsageError(
                    f"{problem.name} holds a tensor, {f'{path}.{name}'.lstrip('.')}, that is no "
                    "parameter and no buffer: register it as a buffer and run again"
                )
    small = instantiate(shrunk_inputs(problem), "cpu")
    updates = find_updates(small)
    if updates:
        raise UsageError(
            f"{problem.name} updates its buffers ({', '.join(updates)}), which this export cannot "
            "do; run on the problem in evaluation (`self.eval()` at the end of its __init__)"
        )
    return Examined(whole, small, output, modes(small))


def _words(
    winner: Winner, name: str, seen: Examined, arguments: Sequence[Argument]
) -> dict[str, object]:
    """What the templates ask for."""
    problem, gpu = winner.problem, winner.record.environment.gpu
    names = ", ".join(one.name for one in arguments)
    inputs = [one for one in arguments if one.state is None]
    state = {one.name: one.state for one in arguments if one.state is not None}
    several = isinstance(seen.outputs, tuple | list)
    count = len(seen.outputs) if several else 1
    tensors = [one.name for one in arguments if one.annotation == "Tensor"]
    if not tensors:
        raise UsageError(f"{problem.name} takes no tensor: no operator without one")
    kind = "tuple" if isinstance(seen.outputs, tuple) else "list"
    state_lines = ", ".join(f"{path!r}: {one}" for one, path in state.items())
    return {
        "title": f"{problem.name} as an operator of PyTorch.",
        "package": name,
        "record": "\n".join(textwrap.fill(p, 98) for p in winner.told().splitlines()),
        "dtype": problem.dtype,
        "gpus": repr((gpu,) if gpu else ()),
        "gpus_told": f"{gpu}" if gpu else "a GPU whose name you add to `GPUS` in `operator.py`",
        "verified": literals({one.name: _verified(one.value) for one in arguments}),
        "state": literals({n: repr(path) for n, path in state.items()}),
        "inputs": repr(tuple(one.name for one in inputs)),
        "modes": repr(seen.modes),
        "modes_told": _modes_told(seen.modes),
        "names": names,
        "first_tensor": tensors[0],
        "state_of_model": "{" + state_lines + "}",
        "inputs_given": "".join(f"{one.name}, " for one in inputs).rstrip(" "),
        "annotated": ", ".join(f"{one.name}: {one.annotation}" for one in arguments),
        "returns": "Tensor" if count == 1 else f"tuple[{', '.join(['Tensor'] * count)}]",
        "returned": "own[0]" if count == 1 else "tuple(own)",
        "as_forward": _as_forward(several, count, kind),
        "small": _small(seen.small),
        "tolerance": TOLERANCE[problem.dtype],
        "rows": "".join(f"| `{one.name}` | {_row(one.value)} |\n" for one in arguments),
        "depends": _depends(problem.source),
    }


def _as_forward(several: bool, count: int, kind: str) -> str:
    if not several:
        return "outputs"
    return f"{kind}([outputs])" if count == 1 else f"{kind}(outputs)"


def _verified(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"({tuple(value.shape)}, {value.stride()}, {value.dtype})"


def _row(value: Any) -> str:
    if not isinstance(value, torch.Tensor):
        return repr(value)
    dtype = str(value.dtype).removeprefix("torch.")
    strides = "" if value.is_contiguous() else f", strides {value.stride()}"
    return f"{tuple(value.shape)}, {dtype}{strides}"


def _small(instance: Instance) -> str:
    told: dict[str, str] = {}
    for name, value in zip(instance.arguments.forward, instance.inputs, strict=True):
        told[name] = repr(value)
        if isinstance(value, torch.Tensor):
            low, high = float(value.min()), float(value.max())
            told[name] = f"({tuple(value.shape)}, {value.dtype}, {low:.4g}, {high:.4g})"
            if not value.is_floating_point():
                told[name] = f"({tuple(value.shape)}, {value.dtype}, {int(low)}, {int(high)})"
    return literals(told)


def _modes_told(found: tuple[bool, ...]) -> str:
    if len(found) == 2:
        return "Training and evaluation are the same to it."
    word = "training" if found == (True,) else "evaluation"
    return f"It stands for the module in {word}; in the other mode the module itself is called."


def _depends(source: str) -> str:
    made = re.search(r"^source = (load\(\)|importlib)", source, re.MULTILINE)
    if made is None:
        return ""
    return (
        "\n`reference.py` imports the code that the problem was made of, from where it lies on the "
        "machine\nthat made it.\n"
    )


def _rendered(template: str, words: dict[str, object]) -> str:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    folder = Path(__file__).parent / "templates"
    environment = Environment(
        loader=FileSystemLoader(folder), undefined=StrictUndefined, keep_trailing_newline=True
    )
    return environment.get_template(template).render(words)


def write_package(folder: Path, files: dict[str, str]) -> None:
    """Write the folder whole or not at all. Raises UsageError."""
    partial = folder.with_name(f".{folder.name}.partial")
    for name, text in files.items():
        write_text(partial / name, text)
    try:
        partial.rename(folder)
    except OSError as error:
        raise UsageError(f"cannot make {folder}: {error}") from error
