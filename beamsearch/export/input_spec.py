"""An input as a person writes it: `x: bf16[8,2048,4096]`, `index: i64[8,128] < 32000`, `k: 4`."""

from __future__ import annotations

import ast
import keyword
import re
from collections.abc import Sequence
from dataclasses import dataclass

from beamsearch.errors import UsageError

DTYPES = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "f64": "float64",
    "i8": "int8",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
}
"""Short names, and torch's own."""
FLOATS = ("bfloat16", "float16", "float32", "float64")
RESERVED = ("torch", "source", "built", "copy", "importlib", "sys", "Model", "self")
"""Names that a problem's file has a use of its own for."""
EXAMPLE = 'write it as "x: bf16[8,2048,4096]", "index: i64[8,128] < 32000" or "k: 4"'

_TENSOR = re.compile(r"(\w+)\s*\[([^\]]*)\]\s*(?:<\s*(\w+))?")


@dataclass(frozen=True)
class Dimension:
    """One size: `4096`, a named one (`batch=8`), or the name of one that is given elsewhere."""

    name: str | None
    value: int | None


@dataclass(frozen=True)
class InputSpec:
    """One argument of `forward`."""

    name: str
    dtype: str | None = None
    """Torch's name; none for a plain value."""
    shape: tuple[Dimension, ...] = ()
    below: Dimension | None = None
    """Whole numbers are drawn from 0 up to this, which is not among them."""
    value: object = None
    """The plain value, where it is no tensor."""


def parse_input(text: str) -> InputSpec:
    """An input from the command line. Raises UsageError."""
    name, colon, told = (part.strip() for part in text.partition(":"))
    if not colon or not name.isidentifier() or name in RESERVED or keyword.iskeyword(name):
        raise UsageError(f"--input {text!r} names no input; {EXAMPLE}")
    match = _TENSOR.fullmatch(told)
    if match is None:
        return InputSpec(name, value=_plain(text, told))
    dtype = DTYPES.get(match[1], match[1])
    if dtype not in DTYPES.values():
        raise UsageError(f"--input {text!r}: no dtype {match[1]!r}; one of {', '.join(DTYPES)}")
    shape = tuple(_dimension(text, part) for part in match[2].split(",") if part.strip())
    below = None if match[3] is None else _dimension(text, match[3])
    if below is not None and dtype not in ("int8", "int32", "int64"):
        raise UsageError(f"--input {text!r}: only whole numbers take a limit; {EXAMPLE}")
    return InputSpec(name, dtype, shape, below)


def _plain(text: str, told: str) -> object:
    try:
        value: object = ast.literal_eval(told)
    except (ValueError, SyntaxError) as error:
        raise UsageError(f"--input {text!r} is neither a tensor nor a value; {EXAMPLE}") from error
    if not isinstance(value, bool | int | float):
        raise UsageError(f"--input {text!r}: a plain value is a number or a bool; {EXAMPLE}")
    return value


def _dimension(text: str, part: str) -> Dimension:
    name, equals, value = (word.strip() for word in part.rpartition("="))
    if value.isidentifier() and not equals:
        name, value = value, ""
    if name in RESERVED or keyword.iskeyword(name):
        raise UsageError(f"--input {text!r}: {name} has another meaning; name the size otherwise")
    is_named = name.isidentifier() and not name.startswith("_")
    is_size = value.isdecimal() and int(value) > 0
    if (name and not is_named) or (value and not is_size) or not (name or value):
        raise UsageError(f"--input {text!r}: {part.strip()!r} is no size; {EXAMPLE}")
    return Dimension(name or None, int(value) if value else None)


class Sizes:
    """The sizes of all inputs by name, each of a name of its own and shared where they are equal:
    so a problem can be made smaller one size at a time."""

    def __init__(self, inputs: Sequence[InputSpec]) -> None:
        self.values: dict[str, int] = {}
        places = [part for spec in inputs for part in (*spec.shape, spec.below) if part is not None]
        for place in places:
            if place.name is None or place.value is None:
                continue
            if self.values.setdefault(place.name, place.value) != place.value:
                there = self.values[place.name]
                raise UsageError(f"the size {place.name} is {there} and {place.value}")
        for place in places:
            if place.name is not None and place.name not in self.values:
                raise UsageError(f"the size {place.name} has no value; write {place.name}=8 once")
        for spec in inputs:
            for number, place in enumerate(spec.shape):
                self._add(place, f"{spec.name}_{number}")
            if spec.below is not None:
                self._add(spec.below, f"{spec.name}_below")
        taken = {spec.name for spec in inputs} & set(self.values)
        if taken:
            raise UsageError(f"{taken.pop()} is the name of an input and of a size; rename one")

    def _add(self, place: Dimension, name: str) -> None:
        if place.name is None and place.value != 1 and place.value not in self.values.values():
            assert place.value is not None
            while name in self.values:
                name += "_"
            self.values[name] = place.value

    def word(self, place: Dimension) -> str:
        """A size as source: its name, or 1."""
        if place.name is not None:
            return place.name
        return self.named(place.value) or str(place.value)

    def named(self, value: object) -> str | None:
        """The first size of this value; none where there is none."""
        found = (name for name, size in self.values.items() if size == value)
        return next(found, None) if type(value) is int else None


def drawing(spec: InputSpec, sizes: Sizes) -> str:
    """The source of an expression that draws the input on torch's default device, in its default
    dtype where it is floating."""
    if spec.dtype is None:
        return repr(spec.value)
    shape = ", ".join(sizes.word(place) for place in spec.shape)
    one = f"({shape},)" if len(spec.shape) == 1 else f"({shape})"
    if spec.dtype in FLOATS:
        return f"torch.randn({one})"
    if spec.dtype == "bool":
        return f"torch.rand({one}) < 0.5"
    low, high = ("-128", "128") if spec.dtype == "int8" else ("0", "2")
    if spec.below is not None:
        low, high = "0", sizes.word(spec.below)
    return f"torch.randint({low}, {high}, {one}, dtype=torch.{spec.dtype})"
