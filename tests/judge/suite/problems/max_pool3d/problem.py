"""Max pooling over windows of 27, padded with minus infinity."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

batch = 2
channels = 32
depth = 64
height = 64
width = 64
kernel_size = 3
stride = 2
padding = 1


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding):
        super().__init__()
        self.pool = nn.MaxPool3d(kernel_size, stride=stride, padding=padding)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(batch, channels, depth, height, width)]


def get_init_inputs():
    return [kernel_size, stride, padding]
