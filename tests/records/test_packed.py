"""A packed run reads as the run that was packed, and its archive can do no harm."""

import io
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from beamsearch.errors import UsageError
from beamsearch.records.packed import ARCHIVE, opened_run, written_run
from beamsearch.records.trace import Trace, write_record
from tests import PYTHONPATH
from tests.cli.test_display import NO_GPU
from tools.pack_run import pack


@pytest.fixture
def finished(tmp_path: Path) -> Path:
    """A folder with what a run leaves: results, rounds, and what nobody else is to have."""
    trace = Trace(tmp_path / "run")
    write_record(trace.run_file, NO_GPU.model_copy(update={"status": "finished"}))
    for path in (
        trace.results_file,
        trace.input_file,
        trace.ledger_file,
        trace.secret_file,
        trace.folder / ".lock",
        trace.scratch / "cache.bin",
        trace.round(0) / "r0-s0.json",
        trace.worker(1, 0) / "calls" / "opt_reply.json",
    ):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"what {path.name} says\n")
    return trace.folder


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def test_what_is_opened_is_what_was_packed_but_for_what_is_hidden(finished, tmp_path):
    packed = tmp_path / "packed"
    pack(finished, packed, rounds=False)
    before = contents(packed)
    there = contents(opened_run(packed).folder)
    hidden = {".secret_seed", ".lock", ".scratch/cache.bin"}
    assert there == {k: v for k, v in contents(finished).items() if k not in hidden}
    assert len(there) == len(contents(finished)) - len(hidden)
    assert contents(packed) == before, "reading leaves the folder as it was"


def test_a_run_that_is_not_packed_is_read_where_it_is(finished):
    assert opened_run(finished).folder == finished


def test_an_archive_that_is_made_anew_is_opened_anew(finished, tmp_path):
    packed = tmp_path / "packed"
    pack(finished, packed, rounds=False)
    assert opened_run(packed).ledger_file.is_file()
    (finished / "ledger.jsonl").unlink()
    pack(finished, tmp_path / "again", rounds=False)
    (tmp_path / "again" / ARCHIVE).replace(packed / ARCHIVE)
    assert not opened_run(packed).ledger_file.exists()


def test_the_copy_is_gone_when_the_process_ends(finished, tmp_path):
    pack(finished, tmp_path / "packed", rounds=False)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    code = (
        "from pathlib import Path; from beamsearch.records.packed import opened_run\n"
        f"print(opened_run(Path({str(tmp_path / 'packed')!r})).input_file.read_text())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": PYTHONPATH, "TMPDIR": str(temporary)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == "what input_kernel.py says", done.stderr
    assert list(temporary.iterdir()) == []


def test_results_without_their_archive_are_an_error_that_says_where_it_is(finished, tmp_path):
    packed = tmp_path / "packed"
    pack(finished, packed, rounds=True)
    (packed / ARCHIVE).unlink()
    with pytest.raises(UsageError, match=r"trace\.tar\.xz is missing there.*artifacts/"):
        opened_run(packed)


def test_nothing_is_written_into_a_packed_run(finished, tmp_path):
    pack(finished, tmp_path / "packed", rounds=True)
    with pytest.raises(UsageError, match=r"resume .*packed` goes on with a copy"):
        written_run(tmp_path / "packed")
    assert written_run(finished).folder == finished


def planted(folder: Path, *members: tarfile.TarInfo) -> Path:
    """A packed run whose archive holds these."""
    folder.mkdir()
    with tarfile.open(folder / ARCHIVE, "w:xz") as archive:
        for member in members:
            content = json.dumps("planted").encode()
            member.size = len(content) if member.isfile() else 0
            archive.addfile(member, io.BytesIO(content))
    return folder


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "member",
    [
        tarfile.TarInfo("../outside.json"),
        tarfile.TarInfo("optimization_trace/../../outside.json"),
        link("run.json", "/etc/hostname", tarfile.SYMTYPE),
        link("run.json", "/etc/hostname", tarfile.LNKTYPE),
        link("run.json", "", tarfile.FIFOTYPE),
    ],
    ids=["up", "down and up", "symbolic link", "hard link", "pipe"],
)
def test_an_archive_that_reaches_outside_is_refused(member, tmp_path, monkeypatch):
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    with pytest.raises(UsageError, match="is not a file within the run's folder"):
        opened_run(planted(tmp_path / "packed", member))
    assert contents(temporary) == {}


def test_an_absolute_name_is_refused(tmp_path):
    outside = tmp_path / "outside.json"
    with pytest.raises(UsageError, match="is not a file within the run's folder"):
        opened_run(planted(tmp_path / "packed", tarfile.TarInfo(str(outside))))
    assert not outside.exists()


@pytest.mark.parametrize(
    "damage",
    [
        lambda whole: b"",
        lambda whole: whole[: len(whole) // 2],
        lambda whole: whole[:-1],
        lambda whole: whole[:-60] + bytes([whole[-60] ^ 1]) + whole[-59:],
        lambda whole: b"not an archive",
    ],
    ids=["empty", "half", "all but a byte", "a bit turned", "something else"],
)
def test_a_damaged_archive_is_a_clear_error(damage, finished, tmp_path):
    packed = tmp_path / "packed"
    pack(finished, packed, rounds=False)
    (packed / ARCHIVE).write_bytes(damage((packed / ARCHIVE).read_bytes()))
    with pytest.raises(UsageError, match="cannot unpack"):
        opened_run(packed)
