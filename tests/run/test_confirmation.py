"""What a run says of its end beside PyTorch's compiler."""

from beamsearch.records.baselines import Baselines
from beamsearch.records.measurement import Measurement
from beamsearch.records.run import Confirmation
from beamsearch.run.confirmation import slower_than_compiler


def measured(time_ms: float) -> Measurement:
    return Measurement(
        source="measured",
        time_ms=time_ms,
        p20_ms=time_ms,
        p80_ms=time_ms,
        count=20,
        gpu="NVIDIA H200",
        gpu_uuid="GPU-1",
        visit="v",
    )


def confirmed(winner: float, compiled: float, tuned: float | None) -> Confirmation:
    baselines = Baselines(
        compile=measured(compiled), max_autotune=None if tuned is None else measured(tuned)
    )
    return Confirmation(
        name="r1-w0-v0", winner=measured(winner), input=measured(2.0), baselines=baselines
    )


def test_a_run_that_ends_slower_than_the_compiler_says_so():
    [note] = slower_than_compiler(confirmed(1.0, 1.2, 0.9))
    assert "slower than torch.compile with max-autotune" in note and "0.9 ms" in note


def test_a_tie_with_the_compiler_is_none():
    assert slower_than_compiler(confirmed(1.0, 0.995, None)) == []
