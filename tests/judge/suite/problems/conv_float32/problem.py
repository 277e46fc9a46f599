"""A convolution in float32, which PyTorch computes in TF32 by default."""

import torch
import torch.nn as nn

DTYPE = torch.float32
BATCH = 2
CHANNELS = 16
SIZE = 20


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(CHANNELS, 24, 3)

    def forward(self, x):
        return self.conv(x)


def get_inputs():
    return [torch.rand(BATCH, CHANNELS, SIZE, SIZE)]


def get_init_inputs():
    return []
