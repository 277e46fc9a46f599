"""Which forms of a sweep go on, and what becomes of those that fail."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from beamsearch.judge.rejection import Rejected
from beamsearch.judge.timing.sweep import Sweeper
from beamsearch.records.verdict import Outcome, Stage

NAMES = ["as it is", *"abcdefgh"]


class Scripted(Sweeper):
    """A sweeper whose turns are known beforehand; the rest is the real one."""

    def __init__(self, times: dict[str, list[float]]) -> None:
        self.mended = 0
        self.turns: list[str] = []
        self.script = {name: iter(turns) for name, turns in times.items()}

        def mend() -> None:
            self.mended += 1

        timed = SimpleNamespace(sets=SimpleNamespace(mend=mend))
        super().__init__(dict.fromkeys(times), None, timed, lambda: None)  # type: ignore[arg-type]

    def _turn(self, name: str, calls: int) -> float:
        self.turns.append(name)
        try:
            return next(self.script[name])
        except StopIteration:
            raise Rejected(Outcome.WRONG, Stage.TIMING, f"{name} is wrong") from None


def test_the_fastest_quarter_is_timed_longer_beside_the_kernel_as_it_is() -> None:
    slow = {name: [5.0] for name in NAMES}
    sweeper = Scripted(slow | {"as it is": [2.0, 2.1, 1.9], "c": [1.0, 1.2, 1.4], "f": [1.5] * 3})
    sweep = sweeper.run()
    assert sweep.times_ms["as it is"] == [2.0, 2.0]
    assert sweep.times_ms["c"] == [1.0, pytest.approx(1.3)]
    assert sweep.times_ms["a"] == [5.0]
    assert sweeper.turns[len(NAMES) :] == ["as it is", "c", "f", "f", "c", "as it is"]
    assert sweep.failed == {} and sweeper.mended == 0


def test_what_fails_at_any_time_has_no_time_and_the_others_go_on() -> None:
    times = {"as it is": [2.0] * 3, "a": [], "b": [1.0, 1.0], "c": [1.1] * 3}
    sweeper = Scripted(times)
    sweep = sweeper.run()
    assert set(sweep.times_ms) == {"as it is", "c"}
    assert sweep.failed["a"] == "a is wrong" and sweep.failed["b"] == "b is wrong"
    assert sweeper.mended == 2


def test_where_the_kernel_itself_fails_nothing_is_compared_with_it() -> None:
    sweep = Scripted({"as it is": [], "a": [1.0] * 3}).run()
    assert "as it is" not in sweep.times_ms and "as it is" in sweep.failed
    assert Scripted({}).run().times_ms == {}
