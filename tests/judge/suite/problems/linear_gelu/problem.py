"""A linear layer with bias, then the exact GELU, in float32."""

import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float32

M = 2048
N = 4096
K = 2048


class Model(nn.Module):
    """gelu(x @ weight.T + bias), weight (N, K)."""

    def __init__(self, in_features, out_features):
        super().__init__()
        self.linear = nn.Linear(in_features, out_features)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(M, K)]


def get_init_inputs():
    return [K, N]
