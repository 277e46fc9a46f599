"""Numbers of things, as people write them."""


def amount(count: int, thing: str) -> str:
    """`1 round`, `2 rounds`: `thing` is in the singular."""
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
