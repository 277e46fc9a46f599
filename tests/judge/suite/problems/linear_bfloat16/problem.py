"""A linear layer without bias, weight (N, K)."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

M = 2048
N = 2048
K = 4096


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(N, K))

    def forward(self, x):
        return x @ self.weight.T


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return []
