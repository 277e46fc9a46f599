"""A product of two matrices in float32, where TF32 is another result."""

import torch
import torch.nn as nn

DTYPE = torch.float32

M = 1024
N = 1024
K = 1024


class Model(nn.Module):
    def forward(self, A, B):
        return A @ B


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, N)]


def get_init_inputs():
    return []
