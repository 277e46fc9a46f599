"""Rotary position embedding of halves, positions from 0."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

batch = 8
length = 2048
heads = 16
depth = 128


class Model(nn.Module):
    def __init__(self, base):
        super().__init__()
        self.base = base

    def forward(self, x):
        half = x.shape[-1] // 2
        power = torch.arange(half, device=x.device, dtype=torch.float32) / half
        position = torch.arange(x.shape[1], device=x.device, dtype=torch.float32)
        angle = position[:, None, None] * self.base**-power
        cos, sin = angle.cos(), angle.sin()
        first, second = x[..., :half].float(), x[..., half:].float()
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned.to(x.dtype)


def get_inputs():
    return [torch.randn(batch, length, heads, depth)]


def get_init_inputs():
    return [10000.0]
