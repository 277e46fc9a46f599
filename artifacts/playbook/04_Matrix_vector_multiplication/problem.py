"""A tall matrix times one column: every element of A is used once."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

M = 2048
K = 1048576


class Model(nn.Module):
    """C = A @ B with A (M, K) and B (K, 1)."""

    def forward(self, A: torch.Tensor, B: torch.Tensor) -> torch.Tensor:
        return torch.matmul(A, B)


def get_inputs():
    return [torch.rand(M, K), torch.rand(K, 1)]


def get_init_inputs():
    return []
