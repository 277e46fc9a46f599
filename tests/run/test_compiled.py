"""First kernels from recorded compilations."""

from pathlib import Path

import pytest

from beamsearch.errors import Waiting
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.records.captured import Captured, Compilation
from beamsearch.run.compiled import compiled_kernels
from tests import ROOT

DATA = ROOT / "tests" / "data" / "inductor" / "h200"


def record(folder: Path, way: str, name: str) -> None:
    code = Captured.model_validate_json((DATA / f"{name}.json").read_text())
    folder.joinpath(f"{way}.json").write_text(Compilation(way=way, captured=code).model_dump_json())


def test_a_compilation_on_disk_is_not_done_again(tmp_path):
    record(tmp_path, "default", "43")
    tmp_path.joinpath("max_autotune.json").write_text(
        Compilation(way="max_autotune", reason="OutOfMemoryError: …").model_dump_json()
    )
    kernels, reasons = compiled_kernels(tmp_path, RemoteExecutor("NVIDIA H200"), "43", lambda: None)
    assert [k.description for k in kernels] == ["what torch.compile writes (default)"]
    assert reasons == ["torch.compile (max_autotune): OutOfMemoryError: …"]


def test_what_is_a_librarys_is_compiled_without_it(tmp_path):
    record(tmp_path, "default", "82_library")
    record(tmp_path, "max_autotune", "82_library")
    with pytest.raises(Waiting):  # for the third compilation, which needs the GPU
        compiled_kernels(tmp_path, RemoteExecutor("NVIDIA H200"), "82", lambda: None)
    record(tmp_path, "triton_only", "77")
    kernels, reasons = compiled_kernels(tmp_path, RemoteExecutor("NVIDIA H200"), "77", lambda: None)
    assert [k.description for k in kernels] == ["what torch.compile writes (triton_only)"]
    assert all("library for convolution" in reason for reason in reasons)


def test_a_quick_look_tunes_nothing(tmp_path):
    record(tmp_path, "default", "43")
    given = tmp_path, RemoteExecutor("NVIDIA H200"), "43", lambda: None
    kernels, reasons = compiled_kernels(*given, tuned=False)
    assert [k.description for k in kernels] == ["what torch.compile writes (default)"]
    assert not reasons and not (tmp_path / "max_autotune.json").exists()
