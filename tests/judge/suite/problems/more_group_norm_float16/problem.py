"""Group normalisation of images."""

import torch
import torch.nn as nn

DTYPE = torch.float16

batch = 32
channels = 128
groups = 8
height = 64
width = 64


class Model(nn.Module):
    def __init__(self, groups, channels):
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)
        self.norm.weight = nn.Parameter(torch.rand(channels))
        self.norm.bias = nn.Parameter(torch.rand(channels))

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.randn(batch, channels, height, width)]


def get_init_inputs():
    return [groups, channels]
