"""A product of two matrices in bfloat16."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

M = 2048
N = 2048
K = 2048


class Model(nn.Module):
    def forward(self, x, weight):
        return torch.matmul(x, weight)


def get_inputs():
    return [torch.randn(M, K), torch.randn(K, N)]


def get_init_inputs():
    return []
