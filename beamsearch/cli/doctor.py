"""`doctor`: what this machine can do, line by line, and what to do about the rest."""

from __future__ import annotations

import json as json_module
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import typer

from beamsearch.cli.options import DeviceOption, JsonOption, RayOption

Level = Literal["ok", "warn", "fail"]


@dataclass(frozen=True)
class Line:
    """One thing that was looked at. `fail`: the main job cannot run; `warn`: it runs with less."""

    level: Level
    what: str
    found: str
    do: str = ""
    """What to do about it."""


def doctor(json: JsonOption = False, device: DeviceOption = None, ray: RayOption = None) -> None:
    """Check this machine, and say what to do.

    GPU, driver, Nsight Compute, torch, triton, endpoint, folders; with --ray, what each machine of
    the cluster offers and lacks. Exit code 1 only where the main job cannot run at all. Changes
    nothing.
    """
    lines = []
    for line in look(device, ray):
        lines.append(line)
        if not json:
            colour = {"ok": "green", "warn": "yellow", "fail": "red"}[line.level]
            head = typer.style(f"{line.level:<5}", fg=colour)
            typer.echo(f"{head}{line.what:<16}{line.found}")
            if line.do:
                typer.echo(f"{'':21}-> {line.do}")
    failed = any(line.level == "fail" for line in lines)
    if json:
        typer.echo(json_module.dumps({"ok": not failed, "lines": [asdict(x) for x in lines]}))
    if failed:
        raise typer.Exit(1)


def look(device: int | None, ray: str | None = None) -> Iterator[Line]:
    """Every check in turn, cheapest first. `ray`: the address of a cluster, which is then looked at
    in the place of this machine's GPU."""
    yield from _platform()
    yield from _packages()
    if ray is not None:
        yield from _cluster(ray)
    else:
        yield from _gpu(device)
        yield _isolation()
    yield _endpoint()
    yield from _folders()


def _platform() -> Iterator[Line]:
    from beamsearch.gpu.environment import unsupported_platform

    reason = unsupported_platform()
    system = f"{platform.system()} {platform.machine()}, Python {platform.python_version()}"
    yield Line("fail" if reason else "ok", "platform", system, reason or "")


def _packages() -> Iterator[Line]:
    """Versions, and that the packages can really be imported."""
    import importlib

    for name, level in (("torch", "fail"), ("triton", "fail"), ("ncu_report", "warn")):
        try:
            module = importlib.import_module(name)
        except (ImportError, OSError) as error:  # OSError: a shared library that does not load
            needed = "to run anything" if level == "fail" else "to read Nsight Compute's reports"
            yield Line(
                "fail" if level == "fail" else "warn",
                name,
                f"cannot be imported: {error}",
                f"needed {needed}: pip install {name.replace('_', '-')}",
            )
            continue
        version = getattr(module, "__version__", None)
        yield Line("ok", name, str(version) if version else "present")


def _gpu(device: int | None) -> Iterator[Line]:
    from beamsearch.errors import UsageError
    from beamsearch.gpu.environment import devices, pick_device
    from beamsearch.gpu.gauges import gpu_state, judge_state

    try:
        picked = pick_device(device)
    except UsageError as error:
        yield Line("fail", "gpu", str(error))
        return
    if picked is None:
        yield Line(
            "warn",
            "gpu",
            "no NVIDIA GPU: kernels are checked in Triton's interpreter, times are modelled",
            "for measured times run on a machine with an NVIDIA GPU and its driver",
        )
        return
    for other in devices():
        mark = "  (the one that runs use)" if other.index == picked else ""
        memory = f"{other.memory_bytes / 2**30:.0f} GiB"
        yield Line("ok", f"gpu {other.index}", f"{other.name}, {memory}{mark}")
    used = devices()[picked]
    state = gpu_state(used.uuid)
    if state.driver is None:
        yield Line(
            "warn",
            "driver",
            "its management library (NVML) does not answer",
            "other users of the GPU and throttling cannot be seen; install libnvidia-ml.so.1",
        )
    else:
        yield Line("ok", "driver", state.driver)
    for warning in judge_state(used.name, used.memory_bytes, state, least_bytes=0):
        what, _, todo = warning.partition("; ")
        yield Line("warn", "gpu state", what, todo or "wait, or take another GPU with --device")
    yield from _cuda_in_torch()
    yield from _compiler()
    yield from _ncu()


def _cluster(address: str) -> Iterator[Line]:
    """Its machines, as each says of itself."""
    from beamsearch.errors import UsageError
    from beamsearch.executor.cluster import Cluster, best_kind, environment_like, reason_unlike
    from beamsearch.gpu.machine import TARGET

    try:
        cluster = Cluster.at(address, "--lacking")
    except UsageError as error:
        yield Line("fail", "ray", str(error))
        return
    run = environment_like(best_kind(cluster.nodes, None), TARGET)
    usable = [node for node in cluster.nodes if not (node.left_out or reason_unlike(node, run))]
    told = f"Ray {cluster.ray.__version__}, machines: {len(cluster.nodes)}"
    if usable:
        kind = f"measured on {run.gpu}" if run.gpu else "modelled, for no machine has a GPU"
        yield Line("ok", "ray", f"{told}; a run can use {len(usable)}, its times are {kind}")
    else:
        yield Line("fail", "ray", f"{told}; a run can use none", "the lines below say why")
    for node in cluster.nodes:
        what = f"node {node.id[:6]}"
        if node.left_out:
            yield Line("warn", what, f"{node.address}: {node.left_out}", "install it there too")
            continue
        gpu = f"{node.lanes} x {node.gpu}, driver {node.driver}" if node.gpu else "no GPU"
        versions = f"CUDA {node.cuda or 'none'}, torch {node.torch}, triton {node.triton}"
        found = f"{node.address}: {gpu}, {versions}, ncu {node.ncu or 'none'}"
        if reason := reason_unlike(node, run):
            yield Line("warn", what, found, f"left out of such a run: {reason}")
        else:
            yield Line("ok", what, found)
        yield from (Line("warn", what, lack) for lack in node.lacks)
    cluster.close()


def _cuda_in_torch() -> Iterator[Line]:
    try:
        import torch
    except (ImportError, OSError):
        return  # listed already, among the packages
    if torch.version.cuda is None:
        yield Line(
            "fail",
            "torch and CUDA",
            "there is a GPU, but this torch is built without CUDA",
            "install a CUDA build of torch, or hide the GPU with CUDA_VISIBLE_DEVICES= ",
        )
    else:
        yield Line("ok", "torch and CUDA", f"built for CUDA {torch.version.cuda}")


def _compiler() -> Iterator[Line]:
    """Triton compiles a launcher in C for every kernel that runs on a GPU."""
    found = os.environ.get("CC") or shutil.which("gcc") or shutil.which("clang")
    if found:
        yield Line("ok", "C compiler", found)
    else:
        yield Line("fail", "C compiler", "none", "Triton needs one to launch kernels: install gcc")


def _ncu() -> Iterator[Line]:
    from kernel_profiling.ncu.run import check_permission, find_ncu, ncu_version

    path = find_ncu()
    without = "profiles come from the compiler until then"
    if path is None:
        yield Line(
            "warn",
            "ncu",
            "Nsight Compute is not installed",
            f"install the package nsight-compute or the CUDA toolkit; {without}",
        )
        return
    yield Line("ok", "ncu", f"{ncu_version(path)} ({path})")
    permission = check_permission()
    if permission.allowed is False:
        yield Line("warn", "ncu permission", permission.reason, without)
    else:
        yield Line("ok", "ncu permission", permission.reason)


def _isolation() -> Line:
    """What candidates are kept from."""
    from beamsearch.judge.sandbox.isolation import missing_in_words
    from beamsearch.judge.sandbox.processes import missing_here

    missing = missing_here()
    if not missing:
        return Line("ok", "isolation", "candidates have no network, files, processes or root")
    todo = (
        "in a container, start as root with CAP_SYS_ADMIN; candidates run without them until then"
    )
    return Line("warn", "isolation", missing_in_words(missing), todo)


def _endpoint() -> Line:
    from beamsearch.llm.endpoint import endpoint_configured, read_env

    if not endpoint_configured(read_env()):
        return Line(
            "ok",
            "endpoint",
            "none configured: the built-in playbook thinks",
            "for a model set OPENAI_API_KEY, or OPENAI_BASE_URL for one of your own; --llm batch "
            "asks through files and needs neither",
        )
    from beamsearch.llm.openai_chat import check_endpoint

    answers, told = check_endpoint()
    if answers:
        return Line("ok", "endpoint", told)
    return Line("warn", "endpoint", told, "or go without: --llm playbook")


def _folders() -> Iterator[Line]:
    from beamsearch.paths import cache_folder

    kept = "baselines and rates are measured again in every run"
    places: list[tuple[str, Path, Level, str]] = [
        ("cache", cache_folder(), "warn", f"set XDG_CACHE_HOME to a writable folder; else {kept}"),
        ("runs", Path.cwd() / "runs", "warn", "give run an --output folder that can be written"),
    ]
    for what, folder, level, todo in places:
        if _writable(folder):
            yield Line("ok", what, str(folder))
        else:
            yield Line(level, what, f"{folder} cannot be written", todo)


def _writable(folder: Path) -> bool:
    """Whether a file can be made there, or in the nearest folder above that exists; tried, since
    permissions alone do not tell of read-only mounts and full disks."""
    nearest = next(path for path in (folder, *folder.parents) if path.exists())
    try:
        with tempfile.TemporaryFile(dir=nearest):
            return True
    except OSError:
        return False
