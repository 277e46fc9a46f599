"""The beam, on random landscapes: decisions need no GPU, model or clock."""

from hypothesis import given
from hypothesis import strategies as st

from beamsearch.records.candidate import Candidate, Direction
from beamsearch.records.measurement import Measurement
from beamsearch.records.round import RoundRecord
from beamsearch.records.verdict import Check, Outcome, Stage, Verdict
from beamsearch.search import deal, is_win, stop_reason, survivors, worker_seed
from profiling.profile import Finding, FindingKind

CORRECT = Verdict(
    outcome=Outcome.CORRECT, checks=[Check(stage=Stage.SMOKE, name="own", passed=True)]
)
WRONG = Verdict(outcome=Outcome.WRONG, stage=Stage.SMOKE, reason="the last row is missing")


def candidate(name, time_ms=1.0, source="a", verdict=CORRECT, **more):
    measurement = Measurement(source="modelled", time_ms=time_ms, gpu="H200")
    return Candidate(
        name=name,
        round=more.pop("round", 1),
        description="",
        author="playbook",
        fingerprint=source,
        verdict=verdict,
        measurement=measurement if verdict.correct else None,
        **more,
    )


def finding(kind, gain=2.0):
    return Finding(kind=kind, title="t", evidence=["e"], gain_bound=gain, advice="a")


kinds = st.lists(
    st.sampled_from([k for k in FindingKind if k is not FindingKind.AT_FLOOR]), max_size=5
)


@given(st.integers(1, 9), st.integers(1, 4), st.lists(kinds, min_size=4, max_size=4))
def test_no_direction_is_dealt_twice_and_parents_take_turns(workers, beam_size, found):
    beam = [f"k{i}" for i in range(beam_size)]
    findings = {name: [finding(k) for k in found[i]] for i, name in enumerate(beam)}
    history = []
    seen = set()
    for number in range(1, 4):
        plan = deal(beam, findings, workers, history)
        assert [a.parent for a in plan.assignments] == [beam[w % beam_size] for w in range(workers)]
        for a in plan.assignments:
            key = (a.parent, a.direction)
            assert key not in seen
            seen.add(key)
            for variant in range(2):  # two variants of one worker are one direction given
                history.append(
                    candidate(
                        f"r{number}-w{a.worker}-v{variant}",
                        round=number,
                        worker=a.worker,
                        parent=a.parent,
                        direction=a.direction,
                    )
                )


def test_with_one_parent_every_worker_goes_after_another_finding():
    found = [FindingKind.LATENCY, FindingKind.SPILLS, FindingKind.TAIL]
    plan = deal(["k"], {"k": [finding(k) for k in found]}, 4, [])
    directions = [a.direction for a in plan.assignments]
    assert directions[:3] == [Direction(finding=k.value) for k in found]
    assert directions[3] == Direction(finding=FindingKind.LATENCY.value, plan=1)


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.sampled_from("abcdef"), st.booleans()), max_size=12),
    st.integers(1, 4),
)
def test_survivors_are_distinct_correct_and_fastest_first(rows, k):
    pool = [
        candidate(f"c{i}", time, source, CORRECT if good else WRONG)
        for i, (time, source, good) in enumerate(rows)
    ]
    times = {c.name: c.time_ms for c in pool if c.verdict.correct}
    beam = survivors(pool, times, k)
    assert len({c.fingerprint for c in beam}) == len(beam) <= k
    assert [times[c.name] for c in beam] == sorted(times[c.name] for c in beam)
    if times:
        assert times[beam[0].name] == min(times.values())
        assert len(beam) == min(k, len({c.fingerprint for c in pool if c.verdict.correct}))
    else:
        assert beam == []


def test_equal_machine_code_is_one_kernel():
    verdicts = [CORRECT.model_copy(update={"code_fingerprint": f}) for f in ("x", "x", "y")]
    pool = [candidate(f"c{i}", 1.0 + i, str(i), v) for i, v in enumerate(verdicts)]
    beam = survivors(pool, {c.name: c.time_ms for c in pool}, 3)
    assert [c.name for c in beam] == ["c0", "c2"]


def test_a_difference_inside_the_noise_is_a_tie():
    assert not is_win(0.995, 1.0)
    assert is_win(0.98, 1.0)


def rounds(*outcomes):
    made = [
        RoundRecord(round=0, candidates=[candidate("r0-s0")], beam=["r0-s0"], running_best="r0-s0")
    ]
    for number, outcome in enumerate(outcomes, 1):
        verdict = CORRECT if outcome is Outcome.CORRECT else Verdict(outcome=outcome, reason="why")
        made.append(
            RoundRecord(
                round=number,
                candidates=[candidate(f"r{number}-w0-v0", verdict=verdict)],
                beam=["r0-s0"],
                running_best="r0-s0",
            )
        )
    return made


def test_every_stop_has_its_reason_and_none_comes_early():
    assert stop_reason(rounds(Outcome.WRONG), 8) is None
    assert stop_reason(rounds(), 8) is None
    assert "2 rounds" in stop_reason(rounds(Outcome.WRONG, Outcome.CORRECT), 2)
    assert "floor" in stop_reason(rounds(), 8, multiple_of_floor=1.04)
    assert stop_reason(rounds(), 8, multiple_of_floor=1.06) is None
    assert "time" in stop_reason(rounds(), 8, out_of_time=True)
    assert "nothing new" in stop_reason(rounds(Outcome.CORRECT, Outcome.NO_CODE), 8)


def test_seeds_differ_between_workers_and_repeat():
    seeds = {worker_seed(0, r, w) for r in range(8) for w in range(4)}
    assert len(seeds) == 32
    assert worker_seed(0, 1, 2) == worker_seed(0, 1, 2) != worker_seed(1, 1, 2)
