import torch
import torch.nn as nn

B = 2
C = 16
H = 9


class Model(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.gn = nn.GroupNorm(8, c)

    def forward(self, x):
        return torch.tanh(self.gn(x)) * torch.sigmoid(x)


def get_inputs():
    return [torch.randn(B, C, H, H)]


def get_init_inputs():
    return [C]
