"""Somebody's modules and functions, as a file that `new` and `export` are given."""

MODULES = '''
import torch
from torch import nn

import beside


class Block(nn.Module):
    def __init__(self, dim, hidden=32, act="silu"):
        super().__init__()
        self.up = nn.Linear(dim, hidden)
        self.down = nn.Linear(hidden, dim, bias=False)
        self.act = getattr(nn.functional, act)

    def forward(self, x, mask=None, scale=1.0):
        y = self.down(self.act(self.up(x))) * scale
        return y if mask is None else y.masked_fill(~mask, 0)


class Several(nn.Module):
    """Two outputs that have gradients and one that has none, and one that is its own input."""

    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(dim))
        self.register_buffer("shift", torch.ones(dim))
        self.drop = nn.Dropout(0.5)

    def forward(self, x, k, scale=2.0):
        y = self.drop(x * self.weight * scale + self.shift)
        return y, y.sum(-1) * k, y.argmax(-1), x


def scaled(x, weight):
    return beside.times(x, weight)


def picked(index, table):
    return table[index]


torch.manual_seed(3)
block = nn.Sequential(nn.Linear(48, 24), nn.LayerNorm(24), nn.Linear(24, 48)).double()
block[2].weight = nn.Parameter(block[0].weight.t().contiguous())
tied = nn.Sequential(nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False))
tied[1].weight = tied[0].weight
number = 3


def make_block(dim=48, **others):
    return Block(dim).bfloat16().eval()


def make_nothing():
    return 3
'''
BESIDE = "def times(x, weight):\n    return x * weight\n"


def write_modules(folder):
    """The file, with one beside it that it imports."""
    (folder / "beside.py").write_text(BESIDE)
    path = folder / "my_model.py"
    path.write_text(MODULES)
    return path
