"""The ground of every record."""

from typing import Self

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Strict and immutable: an unknown field is an error, a record is replaced, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    def with_values(self, **values: object) -> Self:
        """Another record with these values in place of its own, validated like any other."""
        return type(self).model_validate(dict(self) | values)
