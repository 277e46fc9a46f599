"""A linear layer with bias, then GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.float16

batch = 2048
features = 2048
hidden = 4096


class Model(nn.Module):
    def __init__(self, features, hidden):
        super().__init__()
        self.linear = nn.Linear(features, hidden)

    def forward(self, x):
        return F.gelu(self.linear(x))


def get_inputs():
    return [torch.randn(batch, features)]


def get_init_inputs():
    return [features, hidden]
