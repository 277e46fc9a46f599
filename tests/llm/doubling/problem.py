"""A problem so small that a whole run takes seconds in the interpreter."""

import torch
from torch import nn

ROWS = 4096
COLUMNS = 4096


class Model(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 2.0


def get_inputs():
    return [torch.rand(ROWS, COLUMNS) - 0.5]


def get_init_inputs():
    return []
