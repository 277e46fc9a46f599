"""One question asked and answered, without its texts: those stand in the files it names."""

from beamsearch.records.record import Record


class Metered(Record):
    """What an answer took. A number that the endpoint did not give is None."""

    batch: bool = False
    """Answered through batch files, which providers may charge less for."""
    estimated: bool = False
    """Tokens that the endpoint did not tell are estimated from the texts."""
    tokens_in: int | None = None
    tokens_cached: int | None = None
    """Of `tokens_in`, those the endpoint had cached."""
    tokens_out: int | None = None
    tokens_reasoning: int | None = None
    """Of `tokens_out`, those spent on thinking."""
    latency_s: float | None = None
    """From the first try to the answer, waiting included."""
    retries: int = 0


METERED = {*Metered.model_fields}
"""Names of its fields."""


class Call(Metered):
    """Metadata of a prompt and its reply."""

    round: int
    worker: int
    purpose: str
    attempt: int
    subject: str = ""
    """The candidate that a repair becomes; empty for other purposes."""
    author: str
    prompt_file: str
    reply_file: str
    prompt_sha256: str
    """A recorded reply serves the same (round, worker, purpose, subject, attempt); a hash that
    differs is reported."""
    recorded_sha256: str | None = None
    """Hash of the prompt that a replayed reply was given to, where it is another one."""
    model: str | None = None
    """As it was asked for, which is what prices and weights go by; none where no model was."""


class LedgerLine(Metered):
    """One call in `ledger.jsonl`; where its tokens are estimated, so is its cost."""

    purpose: str
    round: int
    worker: int
    subject: str
    attempt: int
    model: str
    """As it was asked for."""
    answered_by: str
    """As the endpoint reports it."""
    cost_usd: float | None
    """None for a model without a price, or a reply without token counts."""
    prices_of: str
    """Date of the price list."""
