"""The compiler's code as kernel files: what torch.compile wrote on an H200 (data/inductor/h200),
and what its code generator wrote for small problems, with blocks set by hand."""

import ast
import importlib.util
from pathlib import Path

import pytest

from beamsearch.baselines.inductor.convert import convert
from beamsearch.baselines.inductor.generated import NotTriton
from beamsearch.executor.local import LocalExecutor
from beamsearch.gpu.machine import modelled
from beamsearch.problem.instance import instantiate
from beamsearch.problem.kernel import bind
from beamsearch.problem.problem import find_problem, read_problem
from beamsearch.proposer.playbook.rewrites import launch
from beamsearch.proposer.playbook.rewrites.hints import Hints
from beamsearch.records.captured import Captured
from beamsearch.records.job import JudgeJob, Subject
from kernel_profiling.gpus import find_gpu
from tools.compiled import compiled

DATA = Path(__file__).parents[1] / "data" / "inductor"


def captured(path: str) -> Captured:
    return Captured.model_validate_json((DATA / path).read_text())


def load(source: str, folder: Path):
    file = folder / "converted.py"
    file.write_text(source)
    spec = importlib.util.spec_from_file_location(f"converted_{folder.name}", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.slow
@pytest.mark.parametrize("name", ["softmax", "groupnorm", "depthwise"])
def test_a_converted_kernel_computes_the_problem(name, tmp_path):
    problem = read_problem(DATA / name / "problem.py")
    source = convert(captured(f"{name}/captured.json"), problem.name)
    executor = LocalExecutor(problem, machine=modelled(), scratch=tmp_path, seed=1)
    try:
        verdict = executor.run(JudgeJob(subject=Subject(name=name, source=source))).verdict
    finally:
        executor.close()
    assert verdict.correct, verdict.reason


@pytest.mark.parametrize(
    ("name", "launches"),
    [
        ("43", [((476656, 1, 1), 4)]),
        (
            "77",
            [
                ((5202, 1, 1), 4),
                ((108, 1, 1), 4),
                ((16, 1728, 1), 8),
                ((128, 16, 1), 8),
                ((278850, 1, 1), 8),
            ],
        ),
    ],
)
def test_launches_are_those_the_compiler_tuned(name, launches, tmp_path):
    problem = find_problem(name)
    source = convert(captured(f"h200/{name}.json"), problem.name)
    imported = [
        n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Import | ast.ImportFrom)
    ]
    assert {ast.unparse(n) for n in imported} == {
        "import torch",
        "import triton",
        "import triton.language as tl",
    }
    call = bind(load(source, tmp_path), instantiate(problem, "meta").arguments)
    profile = compiled(call, find_gpu("h200"))
    assert [(found.grid, found.threads // 32) for found in profile.launches] == launches


def test_other_shapes_are_refused_by_name(tmp_path):
    module = load(convert(captured("h200/43.json"), "43"), tmp_path)
    problem = find_problem("43")
    small = instantiate(problem.__class__(**{**vars(problem), "sizes": {"dim1": 64}}), "meta")
    with pytest.raises(ValueError, match=r"made for x of shape \(16, 32, 128, 128, 128\)"):
        module.kernel_function(*small.inputs)


def test_a_library_call_is_named():
    with pytest.raises(NotTriton, match="calls the library for convolution"):
        convert(captured("h200/82_library.json"), "82")


def test_rewrites_take_the_launch_apart():
    source = convert(captured("h200/43.json"), "43")
    changed = [text for text, _ in launch.apply(source, Hints())]
    assert any("XBLOCK" in text for text in changed)
    assert any("num_warps" in text for text in changed)
