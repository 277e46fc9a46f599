import torch
import torch.nn as nn

C = 3
H = 15


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.conv = nn.Conv2d(c, c, 3, stride=2, padding=1, groups=c)

    def forward(self, x):
        return torch.relu(self.conv(x))


def get_inputs():
    return [torch.randn(2, C, H, H)]


def get_init_inputs():
    return [C]
