"""What a token costs, from a file with its date."""

from __future__ import annotations

import tomllib
from datetime import date
from pathlib import Path

from pydantic import Field, ValidationError

from beamsearch.errors import UsageError
from beamsearch.records.call import Metered
from beamsearch.records.record import Record

OURS = Path(__file__).with_name("prices.toml")


class Price(Record):
    """US dollars per million tokens of one model."""

    input: float = Field(ge=0)
    cached: float | None = Field(None, ge=0)
    """Of input the endpoint had cached; as other input where there is none."""
    output: float = Field(ge=0)
    """Reasoning included."""
    batch: float = Field(1.0, gt=0)
    """Factor on what goes through batch files."""


class Prices(Record):
    """A price list."""

    date: date
    source: str = ""
    models: dict[str, Price]

    def cost_usd(self, model: str | None, took: Metered) -> float | None:
        """Dollars of one call; None for a model that is not listed or unknown token counts."""
        price = self.models.get(model or "")
        if price is None or took.tokens_in is None or took.tokens_out is None:
            return None
        cached = min(took.tokens_cached or 0, took.tokens_in)
        of_cached = price.input if price.cached is None else price.cached
        whole = (took.tokens_in - cached) * price.input + cached * of_cached
        whole += took.tokens_out * price.output
        return whole * (price.batch if took.batch else 1.0) / 1e6


def read_prices(file: str | None = None) -> Prices:
    """The price list that comes along, below the user's own where one is given.

    The date is the user's list's then. Raises UsageError where it cannot be read.
    """
    ours = _read(OURS)
    if file is None:
        return ours
    theirs = _read(Path(file))
    return theirs.with_values(models=ours.models | theirs.models)


def _read(path: Path) -> Prices:
    try:
        return Prices.model_validate(tomllib.loads(path.read_text()))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read the prices in {path}: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        raise UsageError(f"prices in {path}: {key}: {first['msg']}") from error
