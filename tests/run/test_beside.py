"""Work beside other work of a run: what it came to, what it raised, and a run that is stopped."""

import threading

import pytest

from beamsearch.errors import BeamsearchError, Stopped
from beamsearch.run.beside import Beside
from beamsearch.run.stop import StopToken


def test_it_is_begun_at_once_and_its_result_is_waited_for():
    begun, go_on = threading.Event(), threading.Event()

    def work():
        begun.set()
        assert go_on.wait(10)
        return 7

    beside = Beside(work)
    assert begun.wait(10), "though nobody asked for it yet"
    go_on.set()
    assert beside.result(StopToken()) == 7 == beside.result(StopToken())


def test_what_it_raises_is_raised_where_it_is_asked_for():
    def work():
        raise BeamsearchError("no GPU")

    with pytest.raises(BeamsearchError, match="no GPU"):
        Beside(work).result(StopToken())


def test_a_run_that_is_stopped_does_not_wait_for_it():
    forever, stop = threading.Event(), StopToken()
    stop.set()
    with pytest.raises(Stopped):
        Beside(forever.wait).result(stop)
    forever.set()
