"""How results look in a notebook: HTML from small templates, with everything in it escaped."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jinja2 import Template


def html(template: str, **values: Any) -> str:
    """A filled template."""
    return _compiled(template).render(values)


@cache
def _compiled(template: str) -> Template:
    from jinja2 import Environment

    return Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True).from_string(template)
