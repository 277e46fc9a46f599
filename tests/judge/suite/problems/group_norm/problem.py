"""Group normalisation of an image batch of more than two to the 31 numbers."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

batch = 96
channels = 96
height = 512
width = 512
num_groups = 8


class Model(nn.Module):
    """GroupNorm of x (N, C, H, W), twelve channels a group."""

    def __init__(self, num_groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(num_groups, channels)
        self.norm.weight = nn.Parameter(torch.rand(channels))
        self.norm.bias = nn.Parameter(torch.rand(channels))

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(batch, channels, height, width)]


def get_init_inputs():
    return [num_groups, channels]
