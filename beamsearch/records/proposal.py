"""A kernel before anybody judged it."""

from beamsearch.records.record import Record


class Proposal(Record):
    """A kernel as somebody proposes it."""

    description: str
    source: str | None
    """None where a reply gave a patch that does not apply."""
    author: str = ""
    """`playbook`, `torch.compile`, `candidate.PERSON`, or the model's name as the endpoint reports
    it."""
    patch: str = ""
    """A patch that does not apply."""
    fault: str = ""
    """Why it does not apply."""
