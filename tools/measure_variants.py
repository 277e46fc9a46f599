"""Time the variants of tests/data/variant_sources.json on this machine's GPU, into one JSON file.

`python3 tools/measure_variants.py --out FILE` from the repository's root. Everything is compiled
first, on all cores; then one process at a time checks each variant against the reference in
float32 at the true shapes and times it. A variant that crashes, hangs or is slower than a limit is
written down as such, and the rest goes on.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import datetime
import importlib.util
import json
import os
import re
import select
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
SLOWEST_MS = 300.0
"""A call slower than this is not timed: nothing is learned from it that is worth the GPU's time."""
ANSWER_S = 60.0
"""Seconds a variant may take before the process that times it is ended."""
COMPILE_S = 100.0


def load(name: str, source: str, folder: Path) -> ModuleType:
    """The variant as a module; Triton reads a kernel's source from its file."""
    path = folder / (re.sub(r"[^A-Za-z0-9_]+", "_", name) + ".py")
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def compile_only(variant: dict[str, str], folder: str) -> str:
    """Compile a variant's launches into Triton's cache, on `meta` tensors. Returns an error."""
    from triton.runtime.jit import JITFunction

    from beamsearch.problem.instance import instantiate
    from beamsearch.problem.kernel import bind
    from beamsearch.problem.problem import find_problem

    run = JITFunction.run
    JITFunction.run = lambda self, *args, **kwargs: run(self, *args, **{**kwargs, "warmup": True})
    try:
        instance = instantiate(find_problem(variant["problem"]), "meta")
        bind(load(variant["name"], variant["source"], Path(folder)), instance.arguments)()
    except Exception as error:  # noqa: BLE001 - the timing process meets it again and reports it
        return f"{type(error).__name__}: {error}"
    finally:
        JITFunction.run = run
    return ""


class Lane:
    """Inputs and reference of one problem on the GPU, kept while its variants are timed."""

    def __init__(self, name: str) -> None:
        import torch

        from beamsearch.problem.instance import instantiate
        from beamsearch.problem.problem import find_problem

        problem = find_problem(name)
        self.name = name
        self.own = instantiate(problem, "cuda", seed=1)
        self.signed = instantiate(problem, "cuda", seed=2, distribution="normal")
        exact = instantiate(problem, "meta").model.to_empty(device="cuda").float()
        for mine, given in zip(exact.parameters(), self.signed.model.parameters(), strict=True):
            mine.data = given.data.float()
        first, *rest = self.signed.inputs
        with torch.inference_mode():
            wide = [value.float() for value in rest]
            parts = [exact(part.float(), *wide) for part in first.split(4)]
            self.expected = torch.cat(parts)
        self.scale = float(self.expected.flatten()[: 1 << 26].std())

    def wrong(self, output: Any) -> str:
        """What is wrong with the output for the signed inputs; empty where nothing is."""
        import torch

        if output.shape != self.expected.shape or output.dtype != torch.bfloat16:
            return f"shape {tuple(output.shape)}, dtype {output.dtype}"
        chunks = zip(
            output.flatten().split(1 << 26), self.expected.flatten().split(1 << 26), strict=True
        )
        for got, expected in chunks:
            bound = 2e-2 * expected.abs() + 2e-2 * self.scale
            bad = ~((got.float() - expected).abs() <= bound)
            if bool(bad.any()):
                return f"{int(bad.sum())} of {bad.numel()} values wrong"
        return ""


def measure(variant: dict[str, str], lane: Lane, folder: Path) -> dict[str, Any]:
    """Check and time one variant in this process."""
    import torch
    from triton.testing import do_bench

    from beamsearch.problem.kernel import bind

    module = load(variant["name"], variant["source"], folder)
    with torch.inference_mode():
        output = bind(module, lane.signed.arguments)()
        torch.cuda.synchronize()
        wrong = lane.wrong(output)
        del output
        if wrong:
            return {"state": f"wrong: {wrong}"}
        call = bind(module, lane.own.arguments)
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        call()
        end.record()
        torch.cuda.synchronize()
        once = start.elapsed_time(end)
        if once > SLOWEST_MS:
            return {"state": "slow", "once_ms": once}
        # At least eleven timed calls, and at least 80 ms of them.
        rep = max(80, int(11 * once))
        p50, p20, p80 = do_bench(call, warmup=20, rep=rep, quantiles=[0.5, 0.2, 0.8])
    return {"state": "ok", "ms": p50, "p20_ms": p20, "p80_ms": p80}


def serve() -> None:
    """Answer one line of JSON for each line of JSON on stdin, holding one problem's inputs."""
    import torch

    lane: Lane | None = None
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a kernel prints is no answer
    with tempfile.TemporaryDirectory() as folder:
        for line in sys.stdin:
            variant = json.loads(line)
            if lane is None or lane.name != variant["problem"]:
                lane = None
                torch.cuda.empty_cache()
                lane = Lane(variant["problem"])
            try:
                answer = measure(variant, lane, Path(folder))
            except Exception as error:  # noqa: BLE001 - a variant's failure is its result
                answer = {"state": f"error: {type(error).__name__}: {str(error)[-300:]}"}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()


class Timer:
    """The process that times; started again after a crash, a hang or an error."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, variant: dict[str, str]) -> dict[str, Any]:
        """The answer for one variant, whatever happens to the process."""
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
        process = self.process
        assert process.stdin is not None and process.stdout is not None
        line = ""
        try:
            process.stdin.write(json.dumps(variant) + "\n")
            process.stdin.flush()
            if select.select([process.stdout], [], [], ANSWER_S)[0]:
                line = process.stdout.readline()
        except BrokenPipeError:
            pass
        answer = json.loads(line) if line else {"state": "crash or timeout"}
        if answer["state"].startswith(("error", "crash")):
            self.stop()  # the CUDA context may be spoilt
        return answer

    def stop(self) -> None:
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def environment() -> dict[str, str]:
    """What the times depend on."""
    import torch
    import triton

    query = "--query-gpu=driver_version,clocks.max.sm,clocks.max.mem,uuid"
    smi = subprocess.run(
        ["nvidia-smi", query, "--format=csv,noheader"], capture_output=True, text=True, check=False
    ).stdout.split(", ")
    return {
        "gpu": torch.cuda.get_device_name(0),
        "driver": smi[0].strip() if smi else "",
        "max_clocks": ", ".join(part.strip() for part in smi[1:3]),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "cuda": str(torch.version.cuda),
        "date": datetime.date.today().isoformat(),
        "method": "triton.testing.do_bench, median with 20th and 80th percentile, L2 flushed",
    }


def main() -> None:
    """Compile all, then time all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--sources", type=Path, default=ROOT / "tests/data/variant_sources.json")
    parser.add_argument("--only", default="", help="regular expression over names")
    parser.add_argument("--limit-s", type=float, default=400.0, help="stop timing after this long")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve()
        return
    began = time.monotonic()
    variants = [
        v for v in json.loads(arguments.sources.read_text()) if re.search(arguments.only, v["name"])
    ]
    variants.sort(key=lambda v: v["problem"])
    with tempfile.TemporaryDirectory() as folder:
        pool = concurrent.futures.ProcessPoolExecutor(min(14, os.cpu_count() or 1))
        jobs = {pool.submit(compile_only, v, folder): v["name"] for v in variants}
        done, late = concurrent.futures.wait(jobs, timeout=COMPILE_S)
        for job in done:
            if job.exception() or job.result():
                print(f"compile: {jobs[job]}: {job.exception() or job.result()}", flush=True)
        late_names = {jobs[job] for job in late}
        for process in list((pool._processes or {}).values()) if late else []:
            process.kill()
        pool.shutdown(wait=False, cancel_futures=True)
    print(f"compiled in {time.monotonic() - began:.0f} s; late: {sorted(late_names)}", flush=True)
    timer = Timer()
    results = []
    for variant in variants:
        if variant["name"] in late_names:
            answer: dict[str, Any] = {"state": "compiles too slowly"}
        elif time.monotonic() - began > arguments.limit_s:
            answer = {"state": "no time left"}
        else:
            answer = timer.ask(variant)
        results.append({**variant, **answer})
        print(f"{variant['name']}: {answer}", flush=True)
    timer.stop()
    table = {**environment(), "variants": results}
    if arguments.out:
        arguments.out.write_text(json.dumps(table, indent=1) + "\n")
    good = sum(r["state"] == "ok" for r in results)
    print(f"{good} of {len(results)} timed in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
