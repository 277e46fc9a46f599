"""Baselines and the floor: what is kept, and what becomes of it in another visit."""

import json
from pathlib import Path

import pytest

from beamsearch.baselines.floor import measure_floor
from beamsearch.baselines.reference_times import rescale
from beamsearch.errors import UsageError
from beamsearch.gpu.machine import find_machine, modelled
from beamsearch.problem.problem import find_problem
from beamsearch.records.baselines import Baselines
from beamsearch.records.measurement import Measurement


def measured(time_ms: float, visit: str) -> Measurement:
    return Measurement(
        source="measured",
        time_ms=time_ms,
        p20_ms=time_ms * 0.99,
        p80_ms=time_ms * 1.01,
        count=50,
        gpu="NVIDIA H200",
        gpu_uuid="GPU-1",
        visit=visit,
    )


def test_kept_times_follow_the_anchor_into_the_new_visit():
    # Given baselines of a visit in which the input kernel took 2 ms
    kept = Baselines(
        eager=measured(4.0, "a"), compile=measured(5.0, "a"), anchor=measured(2.0, "a")
    )

    # When the input kernel takes 2.2 ms now, since the GPU is slower today
    now = rescale(kept, measured(2.2, "b"))

    # Then each baseline is a tenth slower, with its spread, and says where it comes from
    assert now.eager is not None and now.eager.time_ms == pytest.approx(4.4)
    assert now.eager.p80_ms == pytest.approx(4.444)
    assert now.compile is not None and now.compile.time_ms == pytest.approx(5.5)
    assert {now.eager.visit, now.compile.visit} == {"b"}
    assert now.rescaled_from == "a"
    assert now.max_autotune is None


def test_floor_without_a_gpu_is_the_datasheets():
    # 2.39 GB at the 4800 GB/s of the H200's datasheet
    floor = measure_floor(find_problem("43"), modelled())
    assert floor.bandwidth_source == "datasheet"
    assert floor.least_bytes == 2 * 16 * 32 * (128**3 + 62**3)
    assert floor.time_ms == pytest.approx(floor.least_bytes / 4800e9 * 1e3)


def test_floor_of_an_unknown_target_names_the_known():
    with pytest.raises(UsageError, match="h200"):
        measure_floor(find_problem("43"), modelled("h9000"))


@pytest.mark.gpu
def test_rates_are_measured_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    problem = find_problem("82")
    floor = measure_floor(problem, find_machine(0))
    assert floor.bandwidth_source == "measured"
    (kept,) = Path(tmp_path).rglob("ceilings/*.json")
    text = json.loads(kept.read_text())
    kept.write_text(json.dumps(text | {"bandwidth_gb_s": text["bandwidth_gb_s"] / 2}))
    again = measure_floor(problem, find_machine(0))
    assert again.memory_ms == pytest.approx(2 * floor.memory_ms)
