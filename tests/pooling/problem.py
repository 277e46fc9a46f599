"""Max pooling with a window of four: rounds with wins, in a third of the time that three
dimensions take in the interpreter."""

import torch
from torch import nn

DTYPE = torch.bfloat16

batch_size = 32
channels = 64
height = 512
width = 512
kernel_size = 2
stride = 2
padding = 1
dilation = 2


class Model(nn.Module):
    def __init__(self, kernel_size, stride, padding, dilation):
        super().__init__()
        self.pool = nn.MaxPool2d(kernel_size, stride=stride, padding=padding, dilation=dilation)

    def forward(self, x):
        return self.pool(x)


def get_inputs():
    return [torch.rand(batch_size, channels, height, width)]


def get_init_inputs():
    return [kernel_size, stride, padding, dilation]
