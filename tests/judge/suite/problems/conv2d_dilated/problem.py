"""Two-dimensional convolution with stride, padding and dilation, no bias."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

batch = 16
in_channels = 32
out_channels = 64
height = 256
width = 256
kernel_size = 3
stride = 2
padding = 3
dilation = 3


class Model(nn.Module):
    """conv2d of x (N, C_in, H, W)."""

    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, dilation):
        super().__init__()
        self.conv = nn.Conv2d(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            bias=False,
        )

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(batch, in_channels, height, width)]


def get_init_inputs():
    return [in_channels, out_channels, kernel_size, stride, padding, dilation]
