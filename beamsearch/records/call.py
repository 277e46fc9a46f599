"""One question asked and answered, without its texts: those stand in the files it names."""

from beamsearch.records.record import Record


class Call(Record):
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
    """A recorded reply serves the same (round, worker, purpose, subject, attempt); a hash that differs is
    reported."""
    tokens_in: int | None = None
    tokens_out: int | None = None
    latency_s: float | None = None
    retries: int = 0
