"""Root-mean-square normalisation over the channel dimension of an image batch."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

batch_size = 112
features = 64
height = 512
width = 512


class Model(nn.Module):
    """x / sqrt(mean(x**2 over dim 1) + eps)."""

    def __init__(self, num_features: int, eps: float = 1e-5):
        super().__init__()
        self.num_features = num_features
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rms = torch.sqrt(torch.mean(x**2, dim=1, keepdim=True) + self.eps)
        return x / rms


def get_inputs():
    return [torch.rand(batch_size, features, height, width)]


def get_init_inputs():
    return [features]
