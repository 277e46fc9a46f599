"""A command that waits for its turn on the GPU, and whoever gives it."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing, contextmanager, nullcontext
from pathlib import Path
from types import SimpleNamespace

import pytest

from beamsearch.judge.capture.forms import Form
from beamsearch.judge.nvidia_tools import profilers, sanitizer
from beamsearch.judge.nvidia_tools.profilers import STANDING_BY, Profilers
from beamsearch.judge.rejection import Log
from kernel_profiling.errors import NcuFailed
from kernel_profiling.ncu.run import Begun, Turn
from kernel_profiling.profile import Profile
from tests import PYTHONPATH
from tests.profiling.test_ncu import REPORT, ends, is_gone, stand_in

COMMAND = """
import sys, time
from pathlib import Path
from beamsearch.judge.nvidia_tools.standing_by import StandingBy
time.sleep(0.3)
if "early" in sys.argv:
    raise SystemExit(3)
standing_by = StandingBy(Path(sys.argv[1]))
got = standing_by.told()
if "late" in sys.argv:
    raise SystemExit(3)
bound = time.monotonic()
turn = got and standing_by.has_turn()
print(got if turn else "nobody", bound, time.monotonic(), flush=True)
"""


class Gpu:
    """Notes when it was held."""

    def __init__(self):
        self.held_at = self.was_over = None
        self.left = lambda: None

    @contextmanager
    def hold(self):
        self.held_at = time.monotonic()
        time.sleep(0.2)
        try:
            yield
        finally:
            self.was_over = self.left()


def start(turn, *more):
    command = [sys.executable, "-c", COMMAND, str(turn.folder), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


@pytest.fixture
def gpu():
    return Gpu()


@pytest.fixture
def turn(tmp_path, gpu):
    return Turn(tmp_path, gpu.hold)


def test_the_gpu_is_taken_once_the_command_is_ready_and_not_before(turn, gpu):
    began = time.monotonic()
    with turn.pipe() as pipe, start(turn) as process:
        assert turn.wait(process, pipe, 60, "a line") == 0
        *got, bound, at = process.stdout.read().split()
    assert got == ["a", "line"]
    assert began + 0.3 < float(bound) < gpu.held_at < gpu.held_at + 0.2 <= float(at)


@pytest.mark.parametrize("when", ["early", "late"])
def test_a_command_that_ends_before_its_turn_holds_nothing(turn, gpu, when):
    with turn.pipe() as pipe, start(turn, when) as process:
        assert turn.wait(process, pipe, 60, "a line") == 3
    assert gpu.held_at is None


@pytest.mark.parametrize("is_told", [False, True])
def test_a_command_that_nobody_waits_for_any_more_ends_by_itself(turn, tmp_path, is_told):
    with turn.pipe() as pipe:
        process = start(turn)
        if is_told:
            os.write(pipe, b"a line\n")
        there(tmp_path / ("bound" if is_told else "ready"))
    with process:
        assert process.stdout.read().startswith("nobody")


def there(file):
    """Once the file is there and tells which process wrote it."""
    while not (file.exists() and file.read_text()):
        time.sleep(0.01)


BEGUN_S = 8
"""A Python has begun by then, also on a busy machine."""

STUCK = (
    COMMAND
    + """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
Path(sys.argv[2]).touch()
time.sleep(60)
"""
)


def test_one_that_never_ends_has_ended_before_the_gpu_is_free(tmp_path, turn, gpu):
    command = [sys.executable, "-c", STUCK, str(turn.folder), str(tmp_path / "stuck")]
    with turn.pipe() as pipe:
        process = subprocess.Popen(command, start_new_session=True)
        gpu.left = lambda: process.poll() is not None
        with pytest.raises(subprocess.TimeoutExpired):
            turn.wait(process, pipe, BEGUN_S, "a line")
    assert (tmp_path / "stuck").exists() and gpu.was_over is True


LINGERS = (
    COMMAND
    + """
standing_by.done()
time.sleep(float(sys.argv[2]))
"""
)


@pytest.mark.parametrize(("stays_s", "timeout_s"), [(0.5, 60), (60, BEGUN_S)])
def test_the_gpu_is_free_once_the_work_on_it_is_done(turn, gpu, stays_s, timeout_s):
    command = [sys.executable, "-c", LINGERS, str(turn.folder), str(stays_s)]
    with turn.pipe() as pipe, subprocess.Popen(command, start_new_session=True) as process:
        gpu.left = lambda: process.poll() is None
        late = pytest.raises(subprocess.TimeoutExpired) if stays_s > timeout_s else nullcontext()
        try:
            with late:
                assert turn.wait(process, pipe, timeout_s, "a line") == 0
            assert gpu.was_over is True
        finally:
            process.kill()


PROFILES = """
import os, sys, threading, time
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from beamsearch.judge.nvidia_tools import profilers as module
folder, how = Path(sys.argv[1]), sys.argv[2]
module.write_call = lambda *_: None
module.CALL = "tests.profiling.stuck_call"
profilers = module.Profilers(None, 0, folder / "scratch", nullcontext)
form = SimpleNamespace(plan=SimpleNamespace(kernels=[]))
(folder / "kernel.py").touch()
work = lambda: profilers.profile(str(folder / "kernel.py"), form, False)
threading.Thread(target=work, daemon=True).start()
while not (folder / "call.json").exists():
    time.sleep(0.01)
if how == "close":
    profilers.close()
os._exit(0)
"""


@pytest.mark.parametrize("how", ["close", "die"])
def test_a_profile_under_way_ends_with_whoever_wanted_it(tmp_path, how):
    ncu = stand_in(tmp_path / "bin", 'exec "$@"')
    environment = os.environ | {"PYTHONPATH": PYTHONPATH, "PATH": f"{ncu.parent}:/bin:/usr/bin"}
    command = [sys.executable, "-c", PROFILES, str(tmp_path), how]
    subprocess.run(command, env=environment, timeout=60, check=True)
    assert ends(tmp_path / "call.json", within_s=0 if how == "close" else 10)


def test_one_that_is_never_ready_is_given_up(turn, gpu):
    with turn.pipe() as pipe:
        process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
        with pytest.raises(subprocess.TimeoutExpired):
            turn.wait(process, pipe, 0.2, "a line")
        process.kill()
        process.wait()
    assert gpu.held_at is None


STANDS_BY = """
import sys
from pathlib import Path
from beamsearch.judge.nvidia_tools.standing_by import StandingBy
standing_by = StandingBy(Path(sys.argv[1]))
line = standing_by.told()
if not (line and standing_by.has_turn()):
    raise SystemExit(4)
Path(line).write_text("called")
"""


def test_one_that_stands_by_calls_what_it_is_told_to_with_its_turn(tmp_path, turn, gpu):
    ncu = stand_in(tmp_path / "bin", f'"$@" && cp {REPORT} $out.ncu-rep')
    command = [sys.executable, "-c", STANDS_BY, str(turn.folder)]
    with closing(Begun(command, ncu=ncu, turn=turn)) as begun:
        there(tmp_path / "ready")
        assert begun.alive and gpu.held_at is None  # ready, and nothing is held for it
        while state_of(begun) != "T":  # nor has it a core
            time.sleep(0.01)
        profile = begun.profile(60, message=str(tmp_path / "called"))
    assert (tmp_path / "called").read_text() == "called"
    assert profile.launches and gpu.held_at is not None


def state_of(begun):
    """Of the profiler: stopped is T, asleep S."""
    return Path(f"/proc/{begun._process.pid}/stat").read_text().rpartition(")")[2].split()[0]


def test_one_that_stands_by_is_ended_with_whoever_started_it(tmp_path, turn, gpu):
    ncu = stand_in(tmp_path / "bin", f'echo $$ > {tmp_path / "pid"}; "$@"')
    command = [sys.executable, "-c", STANDS_BY, str(turn.folder)]
    begun = Begun(command, ncu=ncu, turn=turn)
    there(tmp_path / "ready")
    began = time.monotonic()
    begun.close()
    assert time.monotonic() - began < 2  # it hears that it is to end, though it is stopped
    assert not begun.alive and gpu.held_at is None
    assert is_gone(Path(f"/proc/{int((tmp_path / 'pid').read_text())}/stat"))


def test_one_that_stands_by_is_not_alive_where_its_command_died(tmp_path, turn):
    ncu = stand_in(tmp_path / "bin", '"$@"')
    command = [sys.executable, "-c", STANDS_BY, str(turn.folder)]
    with closing(Begun(command, ncu=ncu, turn=turn)) as begun:
        there(tmp_path / "ready")
        assert begun.alive
        os.kill(int((tmp_path / "ready").read_text()), signal.SIGKILL)
        deadline = time.monotonic() + 10
        while begun.alive:
            assert time.monotonic() < deadline
            time.sleep(0.01)


DIES = """
import os, sys, time
from contextlib import nullcontext
from pathlib import Path
from kernel_profiling.ncu.run import Begun, Turn
code, ncu, folder, said = sys.argv[1:]
turn = Turn(Path(folder), nullcontext)
begun = Begun([sys.executable, "-c", code, folder], ncu=Path(ncu), turn=turn)
if said == "bound":
    os.write(begun._pipe, b"a line\\n")
while not Path(folder, said).exists():
    time.sleep(0.01)
os._exit(0)
"""


@pytest.mark.parametrize("said", ["ready", "bound"])
def test_one_that_stands_by_ends_where_whoever_started_it_dies(tmp_path, said):
    ncu = stand_in(tmp_path / "bin", f'printf $$ > {tmp_path / "pid"}; "$@"')
    command = [sys.executable, "-c", DIES, STANDS_BY, str(ncu), tmp_path, said]
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    subprocess.run(command, env=environment, timeout=60, check=True)
    assert ends(tmp_path / "pid")


def test_profilers_stand_by_again_where_a_run_was_killed(tmp_path, gpu, monkeypatch):
    pids = tmp_path / "pids"
    ncu = stand_in(tmp_path / "bin", f'echo $$ >> {pids}; "$@"')
    monkeypatch.setenv("PATH", f"{ncu.parent}:/bin:/usr/bin")
    for _ in range(2):
        made = Profilers(None, 0, tmp_path / "scratch", gpu.hold)
        made.stand_by()
        made.stand_by()  # as each worker asks for it
        there(pids)
        made.close()
        assert is_gone(Path(f"/proc/{int(pids.read_text())}/stat"))  # one, and it has ended
        pids.unlink()
    assert gpu.held_at is None


def test_as_many_stand_by_as_a_beam_has_parents_once_a_kernel_was_profiled(
    tmp_path, gpu, monkeypatch
):
    ncu = stand_in(tmp_path / "bin", f'"$@" && cp {REPORT} $out.ncu-rep')
    monkeypatch.setenv("PATH", f"{ncu.parent}:/bin:/usr/bin")
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    monkeypatch.setattr(profilers, "write_call", lambda spec, *_: spec.touch())
    monkeypatch.setattr(profilers, "CALL", "tests.profiling.short_call")
    (tmp_path / "kernel.py").touch()
    form = SimpleNamespace(
        plan=SimpleNamespace(kernels=[]),
        compiled=SimpleNamespace(profile=Profile(source="compiler", gpu="", launches=[])),
    )
    made = Profilers(None, 0, tmp_path / "scratch", gpu.hold)
    assert made.profile(str(tmp_path / "kernel.py"), form, False).launches
    assert made._waiting == []  # nobody said that there would be more
    made.stand_by()
    (first,) = made._waiting
    made.profile(str(tmp_path / "kernel.py"), form, False)
    assert first not in made._waiting and len(made._waiting) == STANDING_BY
    made.close()
    assert (tmp_path / "call.json").read_text() == "called"


def test_one_whose_command_dies_before_its_turn_is_told_at_once(tmp_path, gpu):
    ncu = stand_in(tmp_path / "bin", '"$@"; exit 7')

    @contextmanager
    def hold():
        os.kill(int((tmp_path / "bound").read_text()), signal.SIGKILL)
        yield

    command = [sys.executable, "-c", STANDS_BY, str(tmp_path)]
    with closing(Begun(command, ncu=ncu, turn=Turn(tmp_path, hold))) as begun:
        began = time.monotonic()
        with pytest.raises(NcuFailed, match="exit status 7"):
            begun.profile(600, message="a line")
    assert time.monotonic() - began < 60


@pytest.fixture
def memory(tmp_path, monkeypatch):
    """A check of memory by a stand-in, and a kernel's forms at two shapes."""
    program = tmp_path / "compute-sanitizer"
    program.write_text(
        "#!/bin/sh\nwhile [ $1 != --log-file ]; do shift; done\nlog=$2; shift 2\n"
        '"$@"\necho "========= ERROR SUMMARY: 0 errors" > $log\n'
    )
    program.chmod(0o755)
    form = object.__new__(Form)
    elsewhere = [SimpleNamespace(label="small shapes", problem=None, form=form)]
    monkeypatch.setattr(sanitizer, "find_sanitizer", lambda: program)
    monkeypatch.setattr(sanitizer, "write_call", lambda spec, *_: spec.touch())
    monkeypatch.setattr(sanitizer, "scrubbed_environment", lambda: dict(os.environ))
    monkeypatch.setenv("PYTHONPATH", PYTHONPATH)
    check = sanitizer.MemoryCheck(None, 0, tmp_path)
    with closing(check):
        yield check, SimpleNamespace(elsewhere=elsewhere), form


def bound_in(scratch):
    """The folders of the two calls, once they wait for their turn."""
    while len(bound := sorted(scratch.glob("sanitizer-?-*/bound"))) < 2:
        time.sleep(0.01)
    for file in bound:
        there(file)
    return [file.parent for file in bound]


def test_the_sanitizer_watches_calls_once_it_has_the_lane(tmp_path, memory, monkeypatch):
    monkeypatch.setattr(sanitizer, "CALL", "tests.profiling.short_call")
    check, captured, form = memory
    check.begin(captured, form)
    check.begin(captured, form)  # it is already
    folders = bound_in(tmp_path)
    for folder in folders:
        assert (folder / "call.json").read_text() == ""
    log = Log()
    check.finish(log)
    assert [folder.joinpath("call.json").read_text() for folder in folders] == ["called"] * 2
    assert [item.name for item in log.checks] == ["small shapes", "the true shapes"]
    assert not log.not_checked


def test_a_call_that_never_ends_is_ended_and_told(tmp_path, memory, monkeypatch):
    monkeypatch.setattr(sanitizer, "CALL", "tests.profiling.stuck_call")
    monkeypatch.setattr(sanitizer, "SANITIZE_S", 10.0)  # torch takes its time to import
    check, captured, form = memory
    check.begin(captured, form)
    log = Log()
    check.finish(log)
    assert log.not_checked == [
        f"memory safety at {where}: compute-sanitizer says: no end within 10 s"
        for where in ("small shapes", "the true shapes")
    ]
    specs = list(tmp_path.glob("sanitizer-?-*/call.json"))
    assert len(specs) == 2 and all(map(ends, specs))


def test_calls_that_are_not_wanted_any_more_are_ended(tmp_path, memory, monkeypatch):
    monkeypatch.setattr(sanitizer, "CALL", "tests.profiling.short_call")
    check, captured, form = memory
    check.begin(captured, form)
    folders = bound_in(tmp_path)
    check.close()
    for folder in folders:
        assert ends(folder / "bound")
        assert (folder / "call.json").read_text() == ""
