"""First kernels from recorded compilations."""

from pathlib import Path

import pytest

from beamsearch.errors import Waiting
from beamsearch.executor.remote import RemoteExecutor
from beamsearch.records.captured import Captured, Compilation
from beamsearch.run.compiled import CHOSEN, TUNED, WITHOUT_LIBRARY, compiled_kernels
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
    given = tmp_path, RemoteExecutor("NVIDIA H200"), "43", lambda: None
    kernels, reasons = compiled_kernels(*given, TUNED)
    assert [k.description for k in kernels] == ["what torch.compile writes (default)"]
    assert reasons == ["torch.compile (max_autotune): OutOfMemoryError: …"]


def test_what_is_a_librarys_is_no_kernel_to_start_from(tmp_path):
    record(tmp_path, "default", "82_library")
    record(tmp_path, "triton_only", "77")
    given = tmp_path, RemoteExecutor("NVIDIA H200"), "82", lambda: None
    kernels, reasons = compiled_kernels(*given, CHOSEN)
    assert not kernels and "library for convolution" in reasons[0]
    with pytest.raises(Waiting):  # for the tuned one, which needs the GPU
        compiled_kernels(*given, TUNED)
    kernels, reasons = compiled_kernels(*given, WITHOUT_LIBRARY)
    assert [k.description for k in kernels] == ["what torch.compile writes (triton_only)"]
    assert not reasons
