"""Depthwise two-dimensional convolution: every channel has its own small filter."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

batch_size = 16
in_channels = 64
kernel_size = 3
height = 512
width = 512
stride = 1
padding = 0


class Model(nn.Module):
    """conv2d of x (N, C, H, W) with groups = C, no bias."""

    def __init__(self, in_channels: int, kernel_size: int, stride: int = 1, padding: int = 0):
        super().__init__()
        self.conv2d = nn.Conv2d(
            in_channels,
            in_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            groups=in_channels,
            bias=False,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv2d(x)


def get_inputs():
    return [torch.rand(batch_size, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, kernel_size, stride, padding]
