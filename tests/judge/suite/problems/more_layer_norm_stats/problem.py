"""Layer normalisation of rows, with the statistics that training keeps."""

import torch
import torch.nn as nn

DTYPE = torch.float32

rows = 8192
columns = 4096


class Model(nn.Module):
    def __init__(self, columns, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(columns))
        self.bias = nn.Parameter(torch.rand(columns))
        self.eps = eps

    def forward(self, x):
        mean = x.mean(dim=1)
        centered = x - mean[:, None]
        rstd = torch.rsqrt((centered * centered).mean(dim=1) + self.eps)
        return centered * rstd[:, None] * self.weight + self.bias, mean, rstd


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
