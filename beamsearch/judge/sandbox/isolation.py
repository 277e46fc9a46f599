"""What stands between a candidate's process and everything that is not its business.

A child of the fork server isolates itself before it touches anything of the candidate's:
namespaces of its own (Linux: network, IPC, mounts, processes), a file system that is read-only but
for its own folders, limits, and a user that owns nothing. Each part may be refused by the system;
then it is missing, which is reported, but the candidate runs. Where CUDA runs there is no limit on
the address space: CUDA reserves more than there is memory.
"""

from __future__ import annotations

import ctypes
import os
import resource
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

USER = "an unprivileged user"
NETWORK = "no network"
FILES = "no writable place but its own folder"
PROCESSES = "no sight of other processes"
NAMES = (USER, NETWORK, FILES, PROCESSES)
BY_BUBBLEWRAP = (NETWORK, FILES, PROCESSES)

FIRST_UID = 1_900_000_000
"""User ids of candidates start here: systemd's table of ids lists them as used by nobody."""
NOBODY = 65534
PROCESS_LIMIT = 512
"""Processes and threads of one user: CUDA takes a dozen, a compilation a few."""
FILE_LIMIT = 1024
"""Open files of one process: CUDA takes about a hundred."""
SHM = "/dev/shm"

_NEWUSER = 0x10000000
_NEWNS, _NEWUTS, _NEWIPC, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
_NOSUID, _NODEV, _NOEXEC, _BIND, _REC, _PRIVATE = 2, 4, 8, 0x1000, 0x4000, 0x40000
_SYS_MOUNT_SETATTR, _AT_RECURSIVE, _AT_FDCWD, _ATTR_RDONLY = 442, 0x8000, -100, 1
_PR_SET_DUMPABLE, _PR_SET_NO_NEW_PRIVS = 4, 38

_libc = ctypes.CDLL(None, use_errno=True)


class _Attributes(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "userns"))


def may_wrap() -> bool:
    """Whether the fork server is isolated by bubblewrap, where that works."""
    return os.geteuid() != 0 and shutil.which("bwrap") is not None


def bubblewrap(scratch: Path, hidden: list[str]) -> list[str]:
    """The command that isolates the fork server, or nothing.

    Where the judge is not root, and bubblewrap is installed and works. As root, each candidate's
    process isolates itself, from other candidates too.
    """
    if not may_wrap():
        return []
    empty = [word for folder in hidden if Path(folder).is_dir() for word in ("--tmpfs", folder)]
    command = [
        *("bwrap", "--ro-bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"),
        *("--tmpfs", SHM, *empty, "--bind", str(scratch), str(scratch)),
        *("--unshare-net", "--unshare-ipc", "--unshare-uts", "--unshare-pid", "--"),
    ]
    try:
        subprocess.run([*command, "true"], capture_output=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return command


def fork_apart() -> tuple[int, str]:
    """`os.fork`, the child in a process namespace of its own; and why it is not in one, or "".

    Whatever such a child starts ends with it.
    """
    own = os.open("/proc/self/ns/pid", os.O_RDONLY)
    pid = -1
    try:
        missing = _attempt(partial(_unshare, _NEWPID, "a process namespace"))
        pid = os.fork()
        return pid, missing
    finally:
        if pid and not missing:
            _check(_libc.setns(own, _NEWPID), "return to the server's process namespace")
        os.close(own)


@dataclass(frozen=True)
class Plan:
    """What one process is to be left with."""

    own: list[str]
    """Folders it may write; they are given to its user."""
    needed: list[str]
    """What it must be able to read."""
    hidden: list[str]
    """Folders in which it sees nothing but what is its own or needed."""
    uid: int
    """User to become where this process is root."""
    standing: list[str]
    """Parts of the isolation that the fork server has already."""


def build(plan: Plan, apart: str) -> dict[str, str]:
    """Isolate this process, which must have one thread.

    apart: what `fork_apart` said. Returns each part -> why it is missing, "" where it holds.
    """
    missing = dict.fromkeys(NAMES, "")
    missing[PROCESSES] = apart
    wanted = [name for name in NAMES if not missing[name] and name not in plan.standing]
    if os.geteuid() != 0 and {NETWORK, FILES} & set(wanted):
        refused = _attempt(_enter_user_namespace)
        missing |= {name: refused for name in (NETWORK, FILES) if refused and name in wanted}
        wanted = [name for name in wanted if not missing[name]]
    if NETWORK in wanted:
        kinds = _NEWNET | _NEWIPC | _NEWUTS
        missing[NETWORK] = _attempt(partial(_unshare, kinds, "a network namespace"))
    if FILES in wanted:
        apart_here = not apart and PROCESSES not in plan.standing
        missing[FILES] = _attempt(partial(_shut_files, plan, own_processes=apart_here))
    if USER in wanted:
        missing[USER] = _become(plan)
    _limit()
    prctl(_PR_SET_NO_NEW_PRIVS, 1)
    return missing


def missing_in_words(missing: Mapping[str, str]) -> str:
    """The isolation in one line: what is missing and why."""
    lacking = [f"{name} ({reason})" for name, reason in missing.items() if reason]
    return "isolation lacks: " + "; ".join(lacking) if lacking else "isolation: whole"


def python_places() -> list[str]:
    """What any process of ours reads: Python, its packages, this code."""
    places = [sys.base_prefix, sys.prefix, *(p for p in sys.path if p and Path(p).is_dir())]
    return list(dict.fromkeys(str(Path(place).resolve()) for place in places))


def _attempt(action: Callable[[], None]) -> str:
    """Why the system refuses, "" where it does not."""
    try:
        action()
    except OSError as error:
        return error.strerror or str(error)
    return ""


def _check(status: int, what: str) -> None:
    if status != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def prctl(option: int, value: int) -> None:
    """Set something of this process. Raises OSError."""
    _check(_libc.prctl(option, value, 0, 0, 0), f"prctl {option}")


def _unshare(flags: int, what: str) -> None:
    _check(_libc.unshare(flags), what)


def _enter_user_namespace() -> None:
    """Be allowed what root is, over namespaces of one's own alone."""
    uid, gid = os.geteuid(), os.getegid()
    _unshare(_NEWUSER, "a user namespace")
    Path("/proc/self/setgroups").write_text("deny")
    Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
    Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")


def _shut_files(plan: Plan, own_processes: bool) -> None:
    """Everything read-only but the own folders, shared memory of its own, private homes empty."""
    _unshare(_NEWNS, "a mount namespace")
    _mount(None, "/", None, _REC | _PRIVATE)
    _empty([*plan.own, *plan.needed], plan.hidden)
    shared_memory = [SHM] if Path(SHM).is_dir() else []
    for folder in plan.own:
        _mount(folder, folder, None, _BIND)
    for folder in shared_memory:
        _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, "size=64m,mode=1777")
    if own_processes:
        _mount("proc", "/proc", "proc", _NOSUID | _NODEV | _NOEXEC)
    _set_read_only("/", True)
    # What an ordinary user may write in /dev and /proc is devices and itself; CUDA does.
    kernel = [folder for folder in ("/dev", "/proc") if Path(folder).is_mount()]
    for folder in (*plan.own, *shared_memory, *kernel):
        _set_read_only(folder, False)


def _empty(needed: list[str], hidden: list[str]) -> None:
    """Take out of sight what a folder holds beside what is needed: of a hidden folder, and of one
    closed to other users, such as /root, with something needed in it."""
    behind: dict[Path, dict[Path, int]] = {}
    for place in map(Path, needed):
        for parent in place.parents:
            if str(parent) in hidden or not parent.stat().st_mode & stat.S_IXOTH:
                inside = behind.setdefault(parent, {})
                if place not in inside:
                    inside[place] = os.open(place, os.O_PATH)
    for folder in map(Path, hidden):
        if folder.is_dir():
            behind.setdefault(folder, {})
    for folder, places in sorted(behind.items()):
        if not (places or folder.is_dir()):
            continue  # it was in another one
        _mount("tmpfs", str(folder), "tmpfs", _NOSUID | _NODEV, "size=1m,mode=755")
        for place, handle in sorted(places.items()):
            place.mkdir(parents=True, exist_ok=True)
            _mount(f"/proc/self/fd/{handle}", str(place), None, _BIND | _REC)
            os.close(handle)


def _limit() -> None:
    """Open files; and processes, but for root, among whose processes are everybody else's."""
    limits = {resource.RLIMIT_NOFILE: FILE_LIMIT, resource.RLIMIT_CORE: 0}
    if os.getuid() >= FIRST_UID:
        limits[resource.RLIMIT_NPROC] = PROCESS_LIMIT
    for kind, wanted in limits.items():
        hard = resource.getrlimit(kind)[1]
        limit = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(kind, (limit, limit))


def _become(plan: Plan) -> str:
    """Leave root for a user who owns nothing else; why not, or ""."""
    if os.geteuid() != 0:
        return "the judge itself is not root"
    if closed := next(_closed_to_others(plan), None):
        return f"{closed} is closed to other users"
    for uid in (plan.uid, NOBODY):  # a container may have few user ids
        if not (refused := _attempt(partial(_change_user, plan.own, uid))):
            # A change of user closes /proc/self to its own process, and CUDA reads there.
            prctl(_PR_SET_DUMPABLE, 1)
            return ""
    return refused


def _closed_to_others(plan: Plan) -> Iterator[Path]:
    """Folders on the way to what it needs that only their owner may enter."""
    for place in (*(Path(own).parent for own in plan.own), *map(Path, plan.needed)):
        for folder in (*reversed(place.parents), place):
            with suppress(OSError):
                if not folder.stat().st_mode & stat.S_IXOTH:
                    yield folder


def _change_user(own: list[str], uid: int) -> None:
    for folder in own:
        for path in (Path(folder), *Path(folder).rglob("*")):
            os.chown(path, uid, uid, follow_symlinks=False)
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


def _mount(source: str | None, target: str, kind: str | None, flags: int, data: str = "") -> None:
    status = _libc.mount(
        *(None if text is None else text.encode() for text in (source, target, kind)),
        ctypes.c_ulong(flags),
        data.encode() or None,
    )
    _check(status, f"mounting {target}")


def _set_read_only(path: str, wanted: bool) -> None:
    """One mount made writable, or all from a path downwards made read-only."""
    attributes = _Attributes(_ATTR_RDONLY if wanted else 0, 0 if wanted else _ATTR_RDONLY, 0, 0)
    status = _libc.syscall(
        *map(ctypes.c_long, (_SYS_MOUNT_SETATTR, _AT_FDCWD)),
        *(ctypes.c_char_p(path.encode()), ctypes.c_ulong(_AT_RECURSIVE if wanted else 0)),
        *(ctypes.byref(attributes), ctypes.c_size_t(ctypes.sizeof(attributes))),
    )
    _check(status, f"changing {path} to {'read-only' if wanted else 'writable'}")
