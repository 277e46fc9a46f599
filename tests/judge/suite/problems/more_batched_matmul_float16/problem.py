"""Products of a batch of matrices."""

import torch
import torch.nn as nn

DTYPE = torch.float16

batch = 32
M = 512
N = 768
K = 512


class Model(nn.Module):
    def forward(self, a, b):
        return torch.bmm(a, b)


def get_inputs():
    return [torch.randn(batch, M, K), torch.randn(batch, K, N)]


def get_init_inputs():
    return []
