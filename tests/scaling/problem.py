"""Rows times a weight and shifted: rounds with wins, in little of the interpreter's time."""

import torch
from torch import nn

DTYPE = torch.bfloat16

rows = 4096
columns = 8192


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns) + 0.5)

    def forward(self, x):
        return torch.relu(x * self.weight)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
