"""Layer normalisation of rows with weight and bias."""

import torch
import torch.nn as nn

DTYPE = torch.float32

rows = 4096
columns = 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(columns)
        self.norm.weight = nn.Parameter(torch.rand(columns))
        self.norm.bias = nn.Parameter(torch.rand(columns))

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(rows, columns)]


def get_init_inputs():
    return []
