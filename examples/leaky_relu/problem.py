"""A problem in KernelBench's format."""

import torch

rows = 4096
columns = 1024


class Model(torch.nn.Module):
    def __init__(self, slope):
        super().__init__()
        self.slope = slope

    def forward(self, x):
        return torch.nn.functional.leaky_relu(x, self.slope)


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [0.1]
