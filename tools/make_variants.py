"""Write the variants whose times the analytic model is fitted to: templates times parameters.

`python tools/make_variants.py` writes tests/data/variant_sources.json; with `--check` every variant
is also run in Triton's interpreter on its shrunk problem and compared with the reference.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
from pathlib import Path
from types import ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TEMPLATES = Path(__file__).resolve().parent / "variants"
SOURCES = ROOT / "tests" / "data" / "variant_sources.json"

VARIANTS: dict[str, list[dict[str, Any]]] = {
    "04_rows": [
        {"BLOCK": 32, "WARPS": 1},
        {"BLOCK": 128, "WARPS": 1},
        {"BLOCK": 512, "WARPS": 8},
        {"BLOCK": 1024, "EVICT": "evict_first"},
        {"BLOCK": 1024, "EARLY_SUM": True},
        {"BLOCK": 2048, "WARPS": 8},
        {"BLOCK": 4096, "WARPS": 8, "CONST": True},
        {"BLOCK": 8192, "WARPS": 4, "CONST": True},
        {"BLOCK": 16384, "WARPS": 16, "CONST": True, "EVICT": "evict_first"},
        {"ROWS": 4, "BLOCK": 1024, "WARPS": 4},
        {"ROWS": 16, "BLOCK": 128, "WARPS": 4},
        {"ROWS": 16, "BLOCK": 512, "WARPS": 8},
        {"ROWS": 64, "BLOCK": 16, "WARPS": 4},
    ],
    "04_split": [
        {"SPLITS": 4, "BLOCK": 1024, "WARPS": 4},
        {"SPLITS": 32, "BLOCK": 4096, "WARPS": 8},
        {"SPLITS": 64, "BLOCK": 256, "WARPS": 1},
        {"SPLITS": 8, "BLOCK": 2048, "WARPS": 2, "ATOMIC": True},
    ],
    "04_dot": [
        {"ROWS": 16, "BLOCK": 256, "SPLITS": 16},
        {"ROWS": 64, "BLOCK": 64, "SPLITS": 32},
    ],
    "36_passes": [
        {"BLOCK": 128, "WARPS": 1},
        {"BLOCK": 128, "WARPS": 4},
        {"BLOCK": 256, "WARPS": 1},
        {"BLOCK": 512, "WARPS": 4},
        {"BLOCK": 1024, "WARPS": 2},
        {"BLOCK": 1024, "RECIPROCAL": True},
        {"BLOCK": 4096, "WARPS": 8},
        {"BLOCK": 8192, "WARPS": 4, "CONST": True},
        {"BLOCK": 512, "WARPS": 2, "CONST": True, "UNROLL": True},
        {"BLOCK": 1024, "WARPS": 8, "CONST": True, "UNROLL": True},
        {
            "BLOCK": 1024,
            "CONST": True,
            "EVICT": "evict_first",
            "KEEP": "evict_last",
            "STORE": ".cs",
        },
        {"BLOCK": 256, "WARPS": 1, "CONST": True, "UNROLL": True, "KEEP": "evict_last"},
    ],
    "36_tile": [
        {"BLOCK": 16, "WARPS": 4},
        {"BLOCK": 64, "WARPS": 4},
        {"BLOCK": 128, "WARPS": 8},
        {"BLOCK": 256, "WARPS": 4},
        {"BLOCK": 512, "WARPS": 8},
        {"BLOCK": 1024, "WARPS": 8},
        {"BLOCK": 128, "WARPS": 8, "CONST": False},
        {"BLOCK": 32, "WARPS": 1},
        {"BLOCK": 16, "WARPS": 1, "FLAT": True},
    ],
    "43_flat": [
        {"BLOCK": 128, "WARPS": 4},
        {"BLOCK": 2048, "WARPS": 8},
        {"BLOCK": 4096, "WARPS": 4},
        {"BLOCK": 256, "WARPS": 4, "CONST": True},
        {"BLOCK": 1024, "WARPS": 4, "CONST": True},
        {"BLOCK": 128, "WARPS": 4, "CONST": True, "UNROLL": True, "NARROW": True},
        {"BLOCK": 256, "WARPS": 4, "CONST": True, "UNROLL": True, "NARROW": True},
        {"BLOCK": 512, "WARPS": 2, "CONST": True, "UNROLL": True, "NARROW": True},
        {"BLOCK": 1024, "WARPS": 4, "CONST": True, "UNROLL": True},
        {"BLOCK": 8192, "WARPS": 4, "CONST": True, "UNROLL": True, "NARROW": True},
    ],
    "43_tile": [
        {"ROWS": 1, "WARPS": 1},
        {"ROWS": 2, "WARPS": 4},
        {"ROWS": 4, "WARPS": 4},
        {"ROWS": 8, "WARPS": 4},
        {"ROWS": 16, "WARPS": 8, "SWAP": True},
        {"ROWS": 32, "WARPS": 4},
        {"ROWS": 2, "WARPS": 2, "DEPTH": 4},
        {"ROWS": 8, "WARPS": 4, "CACHE": ".cg"},
        {"ROWS": 64, "WARPS": 8, "DEPTH": 2},
    ],
    "43_separable": [
        {"BLOCK": 256, "WARPS": 4},
        {"BLOCK": 1024, "WARPS": 4},
        {"BLOCK": 4096, "WARPS": 8},
    ],
    "77_flat": [
        {"BLOCK": 128},
        {"BLOCK": 256},
        {"BLOCK": 1024, "WARPS": 8},
        {"BLOCK": 512, "WARPS": 2},
        {"BLOCK": 256, "UNROLL": True},
        {"BLOCK": 1024, "WARPS": 4, "UNROLL": True},
    ],
    "77_channels": [
        {"BLOCK": 64, "COUT": 64},
        {"BLOCK": 128, "COUT": 64},
        {"BLOCK": 128, "COUT": 32, "WARPS": 8},
        {"BLOCK": 32, "COUT": 16, "WARPS": 2},
        {"BLOCK": 256, "COUT": 64, "WARPS": 8, "STAGES": 3},
        {"BLOCK": 64, "COUT": 64, "UNROLL": True},
        {"BLOCK": 128, "COUT": 8, "DOT": False},
        {"BLOCK": 256, "COUT": 16, "DOT": False},
        {"BLOCK": 64, "COUT": 64, "DOT": False},
        {"BLOCK": 128, "COUT": 64, "DOT": False, "WARPS": 8},
        {"BLOCK": 32, "COUT": 4, "DOT": False, "WARPS": 1},
    ],
    "77_parity": [
        {"BLOCK": 32, "WARPS": 2},
        {"BLOCK": 64},
        {"BLOCK": 128, "WARPS": 4},
        {"BLOCK": 128, "WARPS": 8, "STAGES": 2},
        {"BLOCK": 256, "WARPS": 8},
        {"BLOCK": 64, "COUT": 16},
        {"BLOCK": 64, "FILL": False, "STAGES": 1},
    ],
    "82_flat": [
        {"BLOCK": 128},
        {"BLOCK": 256, "WARPS": 8},
        {"BLOCK": 512},
        {"BLOCK": 4096, "WARPS": 8},
        {"BLOCK": 128, "CONST": True},
        {"BLOCK": 512, "CONST": True},
        {"BLOCK": 1024, "CONST": True, "CACHE": ".cg"},
        {"BLOCK": 2048, "CONST": True, "WARPS": 4},
        {"BLOCK": 8192, "CONST": True, "WARPS": 4},
    ],
    "82_tile": [
        {"ROWS": 1, "COLUMNS": 512, "WARPS": 4},
        {"ROWS": 4, "COLUMNS": 128, "WARPS": 4},
        {"ROWS": 8, "COLUMNS": 128, "WARPS": 4},
        {"ROWS": 32, "COLUMNS": 32, "WARPS": 4, "TALL": True},
        {"ROWS": 128, "COLUMNS": 8, "WARPS": 4},
        {"ROWS": 64, "COLUMNS": 64, "WARPS": 8},
        {"ROWS": 16, "COLUMNS": 512, "WARPS": 4, "PLANES_FIRST": True},
    ],
    "82_strip": [
        {"STRIP": 4, "COLUMNS": 512},
        {"STRIP": 8, "COLUMNS": 512, "UNROLL": False},
        {"STRIP": 16, "COLUMNS": 128, "WARPS": 1},
        {"STRIP": 8, "COLUMNS": 512, "ROLL": True},
        {"STRIP": 32, "COLUMNS": 256, "WARPS": 1, "ROLL": True},
        {"STRIP": 16, "COLUMNS": 1024, "WARPS": 2, "ROLL": True},
        {"STRIP": 64, "COLUMNS": 512, "WARPS": 4, "ROLL": True},
    ],
}


def make() -> list[dict[str, str]]:
    """Every variant as {name, problem, source}; the problems' first kernels come first."""
    made = []
    problems = {path.name[:2]: path for path in sorted((ROOT / "problems").glob("[0-9]*"))}
    for number, folder in problems.items():
        source = (folder / "input_kernel.py").read_text()
        made.append({"name": f"{number}_input", "problem": folder.name, "source": source})
    for template, settings in VARIANTS.items():
        text = (TEMPLATES / f"{template}.py").read_text()
        for values in settings:
            source = text
            for name, value in values.items():
                source, count = re.subn(rf"(?m)^{name} = .*$", f"{name} = {value!r}", source)
                assert count == 1, (template, name)
            label = "-".join(f"{name.lower()}={value}" for name, value in values.items())
            made.append(
                {
                    "name": f"{template}-{label}",
                    "problem": problems[template[:2]].name,
                    "source": source,
                }
            )
    return made


def load(name: str, source: str, folder: Path) -> ModuleType:
    """The variant as a module; Triton reads a kernel's source from its file."""
    import importlib.util

    path = folder / (re.sub(r"[^A-Za-z0-9_]+", "_", name) + ".py")
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def check(variants: list[dict[str, str]]) -> int:
    """Run each in the interpreter on its shrunk problem. Returns how many are wrong."""
    import tempfile

    import torch

    from beamsearch.problem.instance import instantiate
    from beamsearch.problem.kernel import bind
    from beamsearch.problem.problem import find_problem
    from beamsearch.problem.shrink import shrink
    from kernel_profiling.estimate.interpreter import mend_interpreter

    mend_interpreter()

    instances = {}
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for variant in variants:
            if variant["problem"] not in instances:
                small = shrink(find_problem(variant["problem"]))
                instances[variant["problem"]] = instantiate(small, distribution="normal")
            instance = instances[variant["problem"]]
            started = time.monotonic()
            try:
                output = bind(
                    load(variant["name"], variant["source"], Path(folder)), instance.arguments
                )()
                expected = instance.reference()
                torch.testing.assert_close(output.float(), expected.float(), rtol=2e-2, atol=2e-2)
                state = "ok"
            except Exception as error:  # noqa: BLE001 - any failure of a variant is printed
                wrong += 1
                state = f"WRONG {type(error).__name__}: {error}"
            print(f"{variant['name']}: {state} ({time.monotonic() - started:.1f} s)", flush=True)
    return wrong


def main() -> None:
    """Write the file; check where asked."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    variants = make()
    SOURCES.parent.mkdir(parents=True, exist_ok=True)
    SOURCES.write_text(json.dumps(variants, indent=1) + "\n")
    print(f"{len(variants)} variants in {SOURCES}")
    if arguments.check:
        os.environ["TRITON_INTERPRET"] = "1"
        sys.path.insert(0, str(ROOT))
        sys.exit(1 if check([v for v in variants if re.search(arguments.only, v["name"])]) else 0)


if __name__ == "__main__":
    main()
