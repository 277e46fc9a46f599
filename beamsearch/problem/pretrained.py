"""Models of the `transformers` package that a problem loads by name: built from configurations,
with random weights and without the network."""

from __future__ import annotations

import ast
import re
from typing import Any

from beamsearch.errors import ProblemError
from beamsearch.paths import cache_folder

LOADS = "from_pretrained"
STANDS_IN = "_from_configuration"
"""What such calls of a problem become: this function, with the class before their arguments."""


def replace_loads(tree: ast.Module) -> bool:
    """Have a problem's calls of `from_pretrained` build from configurations; whether it has any."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    found = False
    for call in calls:
        if isinstance(call.func, ast.Attribute) and call.func.attr == LOADS:
            call.args.insert(0, call.func.value)
            call.func = ast.Name(STANDS_IN, ast.Load())
            found = True
    return found


def from_configuration(owner: Any, name: str, *_: Any, config: Any = None, **__: Any) -> Any:
    """What `owner.from_pretrained(name)` gives, but with weights as they are before training: a
    configuration, or a model in evaluation mode, as that leaves it. Raises ProblemError."""
    from transformers import AutoConfig, PretrainedConfig, PreTrainedModel

    if issubclass(owner, AutoConfig | PretrainedConfig):
        return configuration(name)
    config = config or configuration(name)
    if hasattr(owner, "from_config"):  # AutoModel and its like
        return owner.from_config(config).eval()
    if issubclass(owner, PreTrainedModel):
        return owner(config).eval()
    raise ProblemError(f"{owner.__name__}.{LOADS}({name!r}) fetches what cannot be made at random")


def configuration(name: str) -> Any:
    """A model's configuration: that of a file put in our cache, or in the hub's; else the defaults
    of a class of the package whose documentation says that they are this model's. Raises
    ProblemError."""
    from transformers import AutoConfig

    folder = cache_folder() / "models" / name
    if (folder / "config.json").is_file():
        return AutoConfig.from_pretrained(str(folder))
    try:
        return AutoConfig.from_pretrained(name, local_files_only=True)
    except (OSError, ValueError):
        pass  # not in the hub's cache
    found = _defaults(name)
    if found is None:
        raise ProblemError(
            f"nothing here says what {name} looks like: put its config.json "
            f"(https://huggingface.co/{name}/raw/main/config.json) at {folder / 'config.json'}"
        )
    return found


def _defaults(name: str) -> Any:
    """The configuration by its class's own defaults, where its documentation names this model."""
    from transformers.models.auto.configuration_auto import CONFIG_MAPPING, CONFIG_MAPPING_NAMES

    def plain(text: str) -> str:
        return re.sub(r"\W|_", "", text).lower()

    named = re.compile(rf"\[(?:[\w.-]+/)?{re.escape(name)}\]\(https://huggingface\.co/")
    for family in CONFIG_MAPPING_NAMES:
        if plain(family) in plain(name):
            kind = CONFIG_MAPPING[family]
            if named.search(kind.__doc__ or ""):
                return kind()
    return None
