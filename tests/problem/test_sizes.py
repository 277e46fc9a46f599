"""Where a problem's file says its sizes, and how they get smaller."""

import ast

import pytest

from beamsearch.errors import ProblemError, UsageError
from beamsearch.judge.verification.decide import shapes_for
from beamsearch.judge.verification.deciding_shapes import deciding
from beamsearch.problem.instance import instantiate
from beamsearch.problem.problem import find_problem, load_module
from beamsearch.problem.shrink import SMOKE_ELEMENTS, count_elements, integer_sizes, shrink
from beamsearch.problem.sizes import sizes_of

PROBLEM = """
import torch
{sizes}
class Model(torch.nn.Module):
    def forward(self, x, y):
        return x * y
def get_inputs():
    return [torch.rand({x}), torch.rand({y})]
def get_init_inputs():
    return []
"""


def written(folder, sizes, x, y):
    path = folder / "problem.py"
    path.write_text(PROBLEM.format(sizes=sizes, x=x, y=y))
    return find_problem(str(path))


@pytest.mark.parametrize(
    ("sizes", "x", "names"),
    [
        ("a, b = 512, 256", "a, b", ["a", "b"]),
        ("a = b = 512", "a, b", ["a"]),
        ("[a, (b, c)] = 8, (64, 32)", "a, b, c", ["a", "b", "c"]),
        ("shape = (512, 256)", "*shape", ["shape[0]", "shape[1]"]),
        ("a: int = 512\nb = 2 * 128", "a, b", ["a", "b"]),
        ("shapes = [(4000,), [16]]", "*shapes[0], *shapes[-1]", ["shapes[0]", "shapes[1]"]),
        ("", "512, 256", ["get_inputs[0]", "get_inputs[1]"]),
    ],
)
def test_sizes_are_found_however_they_are_said(tmp_path, sizes, x, names):
    problem = written(tmp_path, sizes, x, "1")
    known = integer_sizes(problem)
    assert [name for name in known if known[name] > 1] == names
    small = shrink(problem)
    assert count_elements(small) <= SMOKE_ELEMENTS
    assert any(small.sizes[name] != known[name] for name in names)
    made = load_module(small).get_inputs()[0]
    assert sorted(made.shape) == sorted(
        small.sizes[name] for name in (names * 2 if x == "a, b" and len(names) == 1 else names)
    )


def test_sizes_that_must_be_alike_are_halved_together(tmp_path):
    problem = written(tmp_path, "rows = 1024\ncolumns = 1024", "rows, columns", "rows")
    small = shrink(problem)
    assert small.sizes["rows"] == small.sizes["columns"] == 32


def test_what_cannot_get_small_says_what_to_do(tmp_path):
    problem = written(tmp_path, "", "int('512'), int('256')", "1")
    with pytest.raises(ProblemError, match="Give each of its sizes a name"):
        shrink(problem)


def test_other_values_are_put_where_the_names_say():
    tree = ast.parse("a = b = 4\nc, d = 5, (6, 7)\ndef get_inputs(): return zeros(8, 9)")
    new = {"a": 1, "c": 2, "d[1]": 3, "get_inputs[0]": 0}
    for size in sizes_of(tree):
        if size.name in new:
            size.replace(new[size.name])
    source = "a = b = 1\nc, d = (2, (6, 3))\n\ndef get_inputs():\n    return zeros(0, 9)"
    assert ast.unparse(ast.fix_missing_locations(tree)) == source


HIDDEN = """
import torch
rows, features, hidden = 512, 1024, 4096
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = torch.nn.Linear(features, hidden), torch.nn.Linear(hidden, features)
    def forward(self, x):
        return self.down(torch.relu(self.up(x)))
def get_inputs():
    return [torch.rand(rows, features)]
def get_init_inputs():
    return []
"""


def test_a_size_that_only_parameters_have_is_shrunk_too(tmp_path):
    path = tmp_path / "problem.py"
    path.write_text(HIDDEN)
    small = shrink(find_problem(str(path)))
    assert count_elements(small) <= SMOKE_ELEMENTS
    assert 8 <= small.sizes["hidden"] < 2048 and small.sizes["features"] >= 15


NORMALISED = """
import torch, torch.nn as nn
batch, size = 10, 224
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
    def forward(self, x):
        x = nn.functional.max_pool2d(x, 2)
        while x.shape[-1] > 3:
            x = nn.functional.max_pool2d(x, 2)
        return self.norm(nn.functional.avg_pool2d(x, 2))
def get_inputs():
    return [torch.rand(batch, 3, size, size)]
def get_init_inputs():
    return []
"""


def test_statistics_over_a_batch_keep_two_of_it_and_an_image_its_least_length(tmp_path):
    (tmp_path / "problem.py").write_text(NORMALISED)
    small = shrink(find_problem(str(tmp_path)))
    assert small.sizes["batch"] == 2 and 8 <= small.sizes["size"] < 32
    assert count_elements(small) <= SMOKE_ELEMENTS


OFFERED = """
import torch
rows, features = 4096, 512
{offered}
class Model(torch.nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.linear = torch.nn.Linear(features, columns)
    def forward(self, x):
        return self.linear(x)
def get_inputs(): return [torch.rand(rows, features)]
def get_init_inputs(): return [256]
"""
MAKERS = """
def get_small_inputs(): return [torch.rand(3, features)]
def get_small_init_inputs(): return [7]
"""


def offering(folder, offered):
    (folder / "problem.py").write_text(OFFERED.format(offered=offered))
    return find_problem(str(folder))


@pytest.mark.parametrize(
    ("offered", "shapes"),
    [
        ('SMALL = {"rows": 2, "features": 48}', {(2, 48), (256, 48), (2, 256)}),
        (MAKERS, {(3, 512), (7, 512), (3, 7)}),
    ],
)
def test_small_sizes_that_a_problem_offers_serve(tmp_path, offered, shapes):
    problem = offering(tmp_path, offered)
    instance = instantiate(shrink(problem))
    found = {instance.inputs[0].shape, instance.model.linear.weight.shape}
    assert {*found, instance.reference().shape} == shapes
    for item in deciding(problem).first():
        assert all(count_elements(shape) for shape in item.problems)
    assert instantiate(problem, "meta").inputs[0].shape == (4096, 512)


@pytest.mark.parametrize(
    ("offered", "reason"),
    [
        ('SMALL = {"row": 2}', "no table of whole numbers for its sizes; they are rows, features"),
        ('SMALL = {"rows": 0.5}', "no table of whole numbers"),
        ('SMALL = ["rows"]', "no table of whole numbers"),
        ('SMALL = {"rows": 2048}', "1572864 elements at its SMALL.*30000"),
        ("def get_small_inputs(): return [torch.rand(3, 5)]", "does not run at its get_small_inp"),
    ],
)
def test_small_sizes_that_are_none_are_refused(tmp_path, offered, reason):
    with pytest.raises(UsageError, match=reason) as refused:
        shrink(offering(tmp_path, offered))
    assert not isinstance(refused.value, ProblemError)  # which would say: it cannot be shrunk


FIXED = """
import torch
batch, length = 16, 96
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(96 * 96, 10)
    def forward(self, x):
        return self.linear(x.flatten(1))
def get_inputs(): return [torch.rand(batch, 96, 96)]
def get_init_inputs(): return []
"""


def test_a_fixed_image_is_judged_at_a_smaller_batch_where_there_is_a_gpu(tmp_path):
    (tmp_path / "problem.py").write_text(FIXED)
    problem = find_problem(str(tmp_path))
    with pytest.raises(ProblemError, match="9226 elements at the least sizes.*SMALL"):
        shrink(problem)
    ((label, shape),) = shapes_for(problem, 64)
    assert label == "shrunk shapes" and 1 < shape.sizes["batch"] < 6
