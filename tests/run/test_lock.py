"""Who has a run's folder, and who only looks at it."""

import fcntl
import threading
import time

from beamsearch.run.lock import folder_lock, is_worked_on


def test_it_is_seen_whether_a_run_is_worked_on(tmp_path):
    assert not is_worked_on(tmp_path / "nowhere")
    with folder_lock(tmp_path):
        assert is_worked_on(tmp_path)
    assert not is_worked_on(tmp_path)


def test_somebody_who_looks_keeps_no_run_from_its_folder(tmp_path):
    (tmp_path / ".lock").touch()
    looking = (tmp_path / ".lock").open()
    fcntl.flock(looking, fcntl.LOCK_SH)
    threading.Timer(0.1, looking.close).start()
    begun = time.monotonic()
    with folder_lock(tmp_path):
        assert time.monotonic() - begun >= 0.09
