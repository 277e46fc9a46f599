"""What `import beamsearch` costs, and what it gives."""

import importlib
import json

import pytest

import beamsearch
from tests.api.process import python

HEAVY = ("torch", "triton", "typer", "rich", "pandas", "numpy", "openai", "jinja2")
LISTED = "print(json.dumps([name for name in sys.modules]))"


def test_nothing_heavier_than_pydantic_is_imported(tmp_path):
    names = ", ".join(beamsearch.__all__)
    for line in ("import beamsearch", f"from beamsearch import {names}"):
        printed = python("-c", f"import json, sys\n{line}\n{LISTED}", cwd=tmp_path)
        assert not set(HEAVY) & set(json.loads(printed)), line


def test_every_name_is_there_and_others_are_missed():
    for name in beamsearch.__all__:
        module = importlib.import_module(f"beamsearch.api.{name.lower()}")
        assert getattr(beamsearch, name) is getattr(module, name)
        assert getattr(beamsearch, name).__doc__
    with pytest.raises(AttributeError, match="optimise"):
        beamsearch.optimise  # noqa: B018
    with pytest.raises(ImportError):
        exec("from beamsearch import optimise")
