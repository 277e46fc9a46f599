"""The modelled time ranks measured variants of a problem it was not fitted to."""

import importlib.util
import json
import statistics

import pytest

from beamsearch.search.pairs import MODELLED_NOISE, NOISE
from kernel_profiling.estimate.time_model import (
    FITTED,
    FITTED_TRITON,
    Work,
    estimate,
    launch_ms,
    parts_ms,
    work_of,
)
from kernel_profiling.gpus import find_gpu
from kernel_profiling.profile import CodeAccess, CodeRegion, Launch, Profile
from tests import ROOT
from tools.model_fit import Sample, concordance, fit, leave_one_out, loss, samples_of, spearman

H200 = find_gpu("h200")
FRESH = (
    "04_rows-block=512-warps=8",
    "36_tile-block=64-warps=4",
    "43_tile-rows=8-warps=4",
    "77_parity-block=128-warps=4",
    "82_strip-strip=8-columns=512-roll=True",
)


@pytest.fixture(scope="module")
def table() -> dict[str, object]:
    return json.loads((ROOT / "tests/data/h200_variants.json").read_text())


@pytest.fixture(scope="module")
def samples(table: dict[str, object]) -> list[Sample]:
    return samples_of(table)


def test_the_table_says_what_it_rests_on(table: dict[str, object], samples: list[Sample]) -> None:
    assert table["gpu"] == "NVIDIA H200"
    assert all(table[key] for key in ("driver", "torch", "triton", "cuda", "date", "method"))
    counts = [
        sum(s.problem == problem for s in samples) for problem in {s.problem for s in samples}
    ]
    assert len(counts) == 5
    assert min(counts) >= 12
    assert sum(counts) >= 60
    sources = json.loads((ROOT / "tests/data/variant_sources.json").read_text())
    assert {s.name for s in samples} <= {source["name"] for source in sources}


def test_ranks_variants_of_a_problem_it_has_not_seen(samples: list[Sample]) -> None:
    correlations = leave_one_out(samples, H200)
    print(correlations)
    assert statistics.median(correlations.values()) >= 0.8
    assert min(correlations.values()) >= 0.6


def recorded_times() -> dict[tuple[str, str], list[tuple[float, float]]]:
    """(author, problem) -> (modelled, measured) times of the kernels of recorded runs."""
    rows = json.loads((ROOT / "tests/data/h200_recorded.json").read_text())
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for row in rows:
        if row["failed"] or row["author"] == "input":
            continue
        works = [Work.model_validate(work) for work in row["works"]]
        least = row["least_bytes"] / H200.bandwidth_gb_s / 1e6
        modelled = max(sum(launch_ms(work, H200) for work in works), least)
        found.setdefault((row["author"], row["problem"]), []).append((modelled, row["ms"]))
    return found


def test_how_sure_a_modelled_win_is() -> None:
    """Kernels that nothing was fitted to: those of the playbook, of a model, and of others."""
    shares = {
        group: concordance(times, MODELLED_NOISE, NOISE)
        for group, times in recorded_times().items()
    }
    print(shares)
    known = {group: share for group, share in shares.items() if share is not None}
    playbook, others = (
        [share for (author, _), share in known.items() if author == name]
        for name in ("playbook", "kernelagent")
    )
    assert len(playbook) >= 4 and min(playbook) >= 0.75
    assert len(others) >= 4 and statistics.median(others) >= 0.9
    written = [share for (author, _), share in known.items() if author != "playbook"]
    assert len(written) >= 12 and statistics.median(written) >= 0.65


def test_kernels_of_problems_that_nothing_was_fitted_to_take_about_the_modelled_time() -> None:
    ratios = [
        modelled / measured
        for (author, problem), times in recorded_times().items()
        if author == "kernelagent" and problem.startswith(("l1_", "l2_"))
        for modelled, measured in times
    ]
    print(sorted(ratios))
    assert len(ratios) == 13 and 0.8 < statistics.median(ratios) < 1.4
    assert min(ratios) > 0.5 and max(ratios) < 2.5


def test_committed_constants_are_the_fit(table: dict[str, object], samples: list[Sample]) -> None:
    assert str(table["works_from_triton"]).startswith(f"{FITTED_TRITON}.")
    # Another machine's logarithm may end the descent a step away, at no other loss.
    assert loss(samples, H200, FITTED) <= 1.01 * loss(samples, H200, fit(samples, H200))


def test_spearman() -> None:
    assert spearman([1, 2, 3, 4], [10, 20, 30, 40]) == pytest.approx(1)
    assert spearman([1, 2, 3, 4], [4, 3, 2, 1]) == pytest.approx(-1)
    assert spearman([1, 2, 2, 4], [1, 3, 2, 4]) == pytest.approx(0.9486832980505138)


@pytest.mark.slow
def test_what_is_seen_today_is_what_was_fitted(
    table: dict[str, object], samples: list[Sample]
) -> None:
    """A compiler of another version writes other code, which may well take another time."""
    import triton

    spec = importlib.util.spec_from_file_location("fit_model", ROOT / "tools/fit_model.py")
    assert spec is not None
    assert spec.loader is not None
    tool = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(tool)
    seen = tool.works("^(" + "|".join(FRESH) + ")$")
    same = triton.__version__ == table["works_from_triton"]
    by_name = {sample.name: sample for sample in samples}
    assert sorted(seen) == sorted(FRESH)
    for name, works in seen.items():
        known = by_name[name]
        today = Sample.model_validate({**known.model_dump(), "works": works})
        ratio = today.modelled_ms(H200, FITTED) / known.modelled_ms(H200, FITTED)
        assert 0.98 < ratio < 1.02 if same else 0.1 < ratio < 3, name
        if same:
            assert today.works[-1].dram_bytes == pytest.approx(known.works[-1].dram_bytes, rel=0.02)


def streaming(grid: int, registers: int = 32) -> Profile:
    """A kernel of 128 threads that loads and stores 16 bytes a thread."""
    accesses = [
        CodeAccess(line=1, kind="load", bits=128, count=1, lane_elements=8),
        CodeAccess(line=2, kind="store", bits=128, count=1, lane_elements=8),
    ]
    region = CodeRegion(
        mix={"global_load": 1, "global_store": 1, "integer": 10},
        lines={1: 6, 2: 6},
        waits=1,
        accesses=accesses,
    )
    launch = Launch(
        name="copy",
        triton=True,
        grid=(grid, 1, 1),
        threads=128,
        registers=registers,
        shared_bytes=0,
        regions=[region],
    )
    return Profile(source="compiler", gpu="H200", launches=[launch])


def test_a_streaming_kernel_takes_its_bytes_over_the_bandwidth() -> None:
    blocks = 1 << 20
    modelled = estimate(streaming(blocks), None, H200).modelled_ms
    assert modelled is not None
    floor = blocks * 128 * 32 / H200.bandwidth_gb_s / 1e6
    assert floor < modelled < 1.6 * floor


def test_more_of_a_thing_takes_longer() -> None:
    (launch,) = streaming(1 << 16).launches
    work = work_of(launch, None, H200)
    base = launch_ms(work, H200)
    for field, value in work.model_dump().items():
        if isinstance(value, float) and value and field != "l1_sectors":  # told, not timed
            assert launch_ms(work.model_copy(update={field: value * 10}), H200) > base, field
    slow = work.model_copy(update={"dram_bytes": work.dram_bytes * 100})
    assert parts_ms(slow, H200)["dram"] > 0.9 * launch_ms(slow, H200)


def test_a_call_without_launches_has_no_time() -> None:
    empty = Profile(source="compiler", gpu="H200", launches=[])
    assert estimate(empty, None, H200).modelled_ms is None


def test_few_blocks_do_not_fill_the_gpu() -> None:
    full, half = (estimate(streaming(n), None, H200).modelled_ms for n in (132 * 16, 66 * 16))
    assert full is not None
    assert half is not None
    assert half > 0.5 * full
