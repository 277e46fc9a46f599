"""Which endpoint is configured: its address and its key, from the environment or a `.env`."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from beamsearch.errors import EndpointError

KEY = "OPENAI_API_KEY"
BASE_URL = "OPENAI_BASE_URL"
DEFAULT_BASE_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "gpt-5.5"
"""Asked for where no `--model` is given."""

_ASSIGNMENT = re.compile(r"\s*(?:export\s+)?(\w+)\s*=\s*(.*?)\s*")
REDACTED = "[key]"


@dataclass(frozen=True)
class Endpoint:
    """An OpenAI-compatible endpoint. The key is never printed: not by `repr`, not in an error."""

    base_url: str
    key: str | None = field(default=None, repr=False)
    """None for an endpoint that asks for none."""

    @property
    def where(self) -> str:
        """The address without user, password or query, as errors name it."""
        parts = urlsplit(self.base_url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path.rstrip('/')}"

    def without_key(self, text: str) -> str:
        """The text with every occurrence of the key taken out."""
        return text if self.key is None else text.replace(self.key, REDACTED)


def read_env(
    folder: Path | None = None, environ: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The endpoint's variables: the environment's, else those of `.env` in the folder (default: the
    current one). Nothing is exported, so no other process inherits what only the file says.

    Raises EndpointError where the file cannot be read.
    """
    path = (folder or Path.cwd()) / ".env"
    found = _read_assignments(path) if path.is_file() else {}
    given = os.environ if environ is None else environ
    values = {**found, **{k: v for k, v in given.items() if v.strip()}}
    return {name: values[name].strip() for name in (KEY, BASE_URL) if values.get(name, "").strip()}


def _read_assignments(path: Path) -> dict[str, str]:
    """`KEY=VALUE` lines: `export`, quotes, and comments after a blank are understood."""
    try:
        lines = path.read_text().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        raise EndpointError(f"cannot read {path}: {reason}; fix it or move it away") from None
    values = {}
    for line in lines:
        match = _ASSIGNMENT.fullmatch(line)
        if match is None:
            continue
        value = match[2]
        if value[:1] in ("'", '"') and value.rfind(value[0]) > 0:
            value = value[1 : value.rfind(value[0])]
        else:
            value = re.split(r"(?:^|\s)#", value)[0].strip()
        values[match[1]] = value
    return values


def endpoint_configured(env: Mapping[str, str]) -> bool:
    """Whether there is somebody to ask: a key, or the address of an endpoint that may need none."""
    return any(env.get(name, "").strip() for name in (KEY, BASE_URL))


def find_endpoint(env: Mapping[str, str]) -> Endpoint:
    """The configured endpoint. Raises EndpointError where there is none or it cannot be one."""
    if not endpoint_configured(env):
        raise EndpointError(
            f"no model endpoint is configured: set {KEY} (in the environment or in .env), or "
            f"{BASE_URL} for an endpoint that asks for no key, or use --llm playbook"
        )
    base_url = env.get(BASE_URL, "").strip() or DEFAULT_BASE_URL
    try:
        parts = urlsplit(base_url)
        usable = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise EndpointError(
            f"{BASE_URL} is not an http(s) address; write for example http://localhost:8000/v1"
        )
    key = env.get(KEY, "").strip() or None
    if key is not None and not (key.isascii() and key.isprintable() and " " not in key):
        raise EndpointError(f"{KEY} holds blanks or signs no key has; copy it again")
    return Endpoint(base_url, key)
