"""Which programs of a launch may load what others store."""

import numpy as np
import pytest

from beamsearch.judge.sandbox.interpreter import Order, Race

PLACE = np.arange(0x7F0000000000, 0x7F0000000000 + 64, 4)
EVERY = np.ones(PLACE.shape, dtype=bool)
NONE = ~EVERY


def play(*programs: str) -> None:
    """Each letter is a step of a program: s(tore), l(oad), a(tomic); in capitals, elsewhere."""
    order = Order()
    order.begin_launch()
    for program in programs:
        order.begin_program()
        for step in program:
            where = PLACE + (1 << 30) * step.isupper()
            if step.lower() == "s":
                order.store(where, EVERY)
            elif step.lower() == "l":
                order.load(where, EVERY)
            else:
                with order.atomic():
                    order.load(where, EVERY)
                    order.store(where, EVERY)


@pytest.mark.parametrize(
    "programs",
    [
        ("sl", "S"),  # each its own
        ("sl", "sl"),  # the same place, but what was stored itself
        ("sa", "al"),  # a ticket, or a flag
        ("sa", "sa", "sal"),
        ("a", "al"),  # atomics alone
        ("l", "ls"),  # loads of what only a later one stores are another matter
    ],
)
def test_programs_that_wait(programs):
    play(*programs)


@pytest.mark.parametrize(
    "programs",
    [
        ("s", "l"),
        ("as", "al"),  # says that it is done, and stores then
        ("sa", "l"),  # does not ask
        ("sa", "las"),  # asks afterwards
        ("sa", "sas", "al"),  # a second store that is not told
        ("s", "", "l"),
    ],
)
def test_programs_that_do_not(programs):
    with pytest.raises(Race):
        play(*programs)


def test_lanes_that_are_masked_touch_nothing():
    order = Order()
    order.begin_launch()
    order.begin_program()
    order.store(PLACE, NONE)
    order.begin_program()
    order.load(PLACE, EVERY)
    order.store(PLACE, EVERY)
    order.begin_program()
    order.load(PLACE, NONE)


def test_another_launch_begins_anew():
    order = Order()
    order.begin_launch()
    order.begin_program()
    order.store(PLACE, EVERY)
    order.begin_launch()
    order.begin_program()
    order.load(PLACE, EVERY)
