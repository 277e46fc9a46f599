"""What references give away, on real torch operations with known answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from beamsearch.baselines import redundant_work
from beamsearch.baselines.redundant_work import Draw, examine, gives_away
from beamsearch.problem.problem import read_problem
from kernel_profiling.profile import GivesAway
from tests import ROOT


def examined(reference: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> GivesAway:
    def draw(number: int) -> Draw:
        torch.manual_seed(number)
        tensors = {name: torch.randn(s) for name, s in zip("xyz", shapes, strict=False)}
        return Draw(lambda: [reference(*tensors.values())], tensors)

    return examine(draw, true_shapes=True)


def test_outputs_of_a_dilated_transposed_convolution_that_no_input_reaches() -> None:
    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.conv_transpose2d(x, y, stride=2, padding=1, dilation=2)

    found = examined(reference, (1, 2, 16, 16), (2, 3, 3, 3))
    # Of 33 x 33 outputs only those at odd places in both directions get a term.
    assert found.zero_outputs == pytest.approx(1 - (16 / 33) ** 2)
    assert found.unused == {} and found.constant_outputs == 0.0


def test_a_strided_dilated_pool_leaves_edges_unread() -> None:
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.max_pool1d(x, 3, stride=2, padding=1, dilation=3)

    found = examined(reference, (4, 4, 64))
    # Windows read 2 i - 1, 2 i + 2 and 2 i + 5 for i up to 29: all but 0 and 62.
    assert found.unused == {"x": pytest.approx(2 / 64)}
    assert found.zero_outputs == 0.0


def test_chance_zeros_are_not_taken_for_certain_ones() -> None:
    found = examined(lambda x: torch.relu(x - 1.0), (64, 64))
    assert (found.zero_outputs, found.constant_outputs, found.unused) == (0.0, 0.0, {})


def test_constants_repeats_and_inputs_without_effect() -> None:
    def reference(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        column = x.sum(dim=1, keepdim=True).expand(-1, 6)
        return torch.cat([column, torch.ones(8, 2)], dim=1) + 0 * y[:1].detach().sum()

    found = examined(lambda x: x.sum(dim=1, keepdim=True).expand(-1, 6), (8, 5))
    assert found.repeated == ["output 0 along dimension 1"]
    found = examined(reference, (8, 5), (4, 4))
    assert found.constant_outputs == pytest.approx(2 / 8)
    assert found.unused == {"y": 1.0}


def test_values_that_the_problem_itself_fixes() -> None:
    def draw(number: int) -> Draw:
        torch.manual_seed(number)
        tensors = {"x": torch.randn(32, 32).tril(), "weight": torch.ones(32)}
        return Draw(lambda: [tensors["x"] * tensors["weight"]], tensors)

    found = examine(draw, true_shapes=True)
    assert found.fixed == {"x": pytest.approx(496 / 1024), "weight": 1.0}


def test_a_result_without_gradients_says_nothing_of_its_inputs() -> None:
    found = examined(lambda x: x.argmax(dim=1), (8, 16))
    assert found.unused == {}


def test_a_problem_is_examined_once_wherever_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []
    examined = redundant_work.answer_of

    def answer_of(*given: Any, **more: Any) -> GivesAway:
        asked.append(given)
        return examined(*given, **more)

    monkeypatch.setattr(redundant_work, "answer_of", answer_of)
    source = (ROOT / "tests" / "scaling" / "problem.py").read_text()
    places = [tmp_path / name / "problem.py" for name in ("here", "there")]
    for place in places:
        place.parent.mkdir()
        place.write_text(f"{source}\n# {tmp_path}\n")
    here, there = map(read_problem, places)
    assert gives_away(here, None) == gives_away(there, None)
    assert len(asked) == 1
    gives_away(there.with_dtype("float16"), None)
    assert len(asked) == 2
