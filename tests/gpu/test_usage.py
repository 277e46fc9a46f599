"""Every moment is booked once: on what the lane does, or on what it waits for."""

from beamsearch.gpu.lane import Lane
from beamsearch.gpu.usage import Usage
from beamsearch.records.usage import LaneUse


class Clock:
    """A clock that is moved by hand."""

    now = 0.0

    def __call__(self):
        return self.now


def test_time_goes_to_the_innermost_work_and_idle_time_to_the_nearest_wait():
    clock = Clock()
    usage = Usage(clock)
    clock.now = 1  # nothing goes on
    with usage.waiting("model"):
        clock.now = 3
        with usage.waiting("compilation"):
            clock.now = 6
            with usage.holding("judging"):
                clock.now = 10
                with usage.holding("timing"):
                    clock.now = 15
                clock.now = 21
            clock.now = 28
        clock.now = 36
    use = usage.so_far()
    assert use.idle_s == {"python": 1, "model": 10, "compilation": 10}
    assert use.busy_s == {"judging": 10, "timing": 5}
    assert use.share == 15 / 36


def test_a_lane_books_what_it_is_held_for_and_a_resumed_run_adds_up(tmp_path):
    clock = Clock()
    usage = Usage(clock)
    lane = Lane("GPU-1", tmp_path, usage=usage)
    with lane.held(work="profiling"):
        clock.now = 4
        with Lane("GPU-1", tmp_path).held(timeout_s=0.0) as held:
            assert not held
    clock.now = 5
    use = LaneUse(busy_s={"profiling": 1.0}, idle_s={"model": 2.0}).plus(usage.so_far())
    assert use == LaneUse(busy_s={"profiling": 5.0}, idle_s={"model": 2.0, "python": 1.0})


def test_the_use_of_several_lanes_is_their_sum_and_tells_each():
    clock = Clock()
    usage = Usage(clock)
    one = LaneUse(busy_s={"judging": 3.0}, idle_s={"a job": 1.0})
    two = LaneUse(busy_s={"judging": 1.0, "timing": 2.0}, idle_s={"a job": 3.0})
    usage.count_lanes(lambda: {"0": one, "1": two})
    use = usage.so_far()
    assert use.busy_s == {"judging": 4.0, "timing": 2.0}
    assert (use.share, use.lanes["0"].share, use.lanes["1"].share) == (0.6, 0.75, 0.5)
    later = use.plus(LaneUse(busy_s={"judging": 1.0}, lanes={"2": LaneUse(busy_s={"judging": 1})}))
    assert later.busy_s["judging"] == 5.0
    assert later.lanes.keys() == {"0", "1", "2"}
