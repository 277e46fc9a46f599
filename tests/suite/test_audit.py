"""Problems that tell good from bad, and those that do not."""

import pytest

from beamsearch.problem.problem import find_problem
from beamsearch.suite import audits as all_audits
from beamsearch.suite.audit import audit
from beamsearch.suite.audits import audits, flaws_of
from kernel_profiling.gpus import find_gpu
from tests.problem.test_functional import CONFIGURATIONS, SOURCE
from tests.problem.test_functional import write as write_task
from tests.suite.problems import write

H200 = find_gpu("h200")
BIG = "torch.randn(rows * 64, columns)"


def flaws(path, **options):
    found = audit(path, H200, **options)
    assert found.failed is None and found.not_examined is None, found
    return {fault.flaw for fault in found.faults} - {"launch overhead"}


@pytest.mark.parametrize(
    ("call", "module", "inputs", "expected"),
    [
        ("x * 2", "pass", BIG, set()),
        ("x.softmax(1)", "pass", BIG, set()),
        (
            "x.softmax(1) * 1e-3",
            "pass",
            BIG,
            {"tiny outputs", "same for any seed", "inputs hardly matter"},
        ),
        (
            "x.new_ones(rows, 1) * torch.arange(columns, device=x.device)",
            "pass",
            BIG,
            {"same for any seed", "inputs hardly matter", "constant along an axis", "idle data"},
        ),
        ("x + self.w[0] * 0", "self.w = nn.Parameter(torch.randn(3))", BIG, {"idle data"}),
        ("x.mean(0, keepdim=True).expand(rows, columns)", "pass", "torch.randn(rows, columns)",
         {"constant along an axis", "idle data"}),
        ("F.layer_norm(x, (columns,)).mean(1)", "pass", BIG,
         {"tiny outputs", "same for any seed", "inputs hardly matter"}),
    ],
)  # fmt: skip
def test_flaws_are_found(tmp_path, call, module, inputs, expected):
    assert flaws(write(tmp_path, call, module, inputs)) == expected


def test_a_border_that_no_window_reaches_is_no_flaw(tmp_path):
    call = "F.max_pool1d(x.view(1, rows, columns), 3, 2)"
    assert flaws(write(tmp_path, call)) == set()


def test_batch_norm_in_training_is_examined(tmp_path):
    found = audit(write(tmp_path, "self.norm(x)", "self.norm = nn.BatchNorm1d(columns)"), H200)
    assert found.gives_away is not None and found.gives_away.failed is None
    assert found.gives_away.draws > 2 and not found.gives_away.unused


def test_a_floor_below_a_launch_is_told(tmp_path):
    small = audit(write(tmp_path, "x * 2"), H200)
    (fault,) = small.faults
    assert fault.flaw == "launch overhead" and small.floor_ms < 0.01
    assert small.least_bytes == 2 * 4 * 512 * 256 and small.shrunk


@pytest.mark.slow
def test_one_that_hangs_or_dies_takes_no_other_with_it(tmp_path):
    paths = []
    for name, module in (
        ("good", "pass"),
        ("hangs", "import time; time.sleep(60)"),
        ("dies", "import os; os.kill(os.getpid(), 9)"),
        ("raises", "raise ValueError('no such model')"),
        ("exits", "raise SystemExit(3)"),
    ):
        (tmp_path / name).mkdir()
        paths.append(write(tmp_path / name, "x * 2", module))
    found = {one.name: one for one in audits(paths, H200, 3, timeout_s=15)}
    assert found.keys() == {"good", "hangs", "dies", "raises", "exits"}
    assert found["good"].failed is None and found["good"].shrunk
    assert "it took over 15 s" in found["hangs"].failed
    assert "exit code -9" in found["dies"].failed
    assert "no such model" in found["raises"].failed
    assert "SystemExit: 3" in found["exits"].failed


def test_what_a_quick_audit_found_is_kept_until_the_file_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    examined = []

    def counted(paths, *given, **options):
        examined.extend(paths)
        return audits(paths, *given, **options)

    monkeypatch.setattr(all_audits, "audits", counted)
    path = write(tmp_path, "x.softmax(1) * 1e-3")
    found = flaws_of(path, H200)
    assert "tiny outputs" in {fault.flaw for fault in found}
    assert flaws_of(path, H200) == found and len(examined) == 1
    assert flaws_of(path, find_gpu("a100")) and len(examined) == 2
    write(tmp_path, "x.softmax(1)")
    assert "tiny outputs" not in {fault.flaw for fault in flaws_of(path, H200)}
    assert len(examined) == 3

    write(tmp_path, "x * 2", "raise ValueError('no such model')")
    assert flaws_of(path, H200) == flaws_of(path, H200) == []
    assert len(examined) == 5  # what could not be run is tried again


def test_a_configuration_is_audited_by_its_own_numbers_and_what_cannot_be_read_by_the_run(
    tmp_path, monkeypatch
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    told = CONFIGURATIONS | {"multi_shared_configs": [{"features": 64}]}
    task = write_task(tmp_path / "norm", told, SOURCE.replace("* weight", "* weight * 1e-3"))
    second = find_problem(f"{task}:2").path
    assert "tiny outputs" in {fault.flaw for fault in flaws_of(second, H200)}
    latin = tmp_path / "latin.py"
    latin.write_bytes(b"# \xe9\n" + write(tmp_path, "x * 2").read_bytes())
    assert flaws_of(latin, H200) == flaws_of(tmp_path / "gone.py", H200) == []
