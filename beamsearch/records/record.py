"""The ground of every record."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """Strict and immutable: an unknown field is an error, a record is replaced, never changed."""

    model_config = ConfigDict(extra="forbid", frozen=True)
