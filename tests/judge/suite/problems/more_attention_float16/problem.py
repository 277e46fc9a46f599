"""Softmax attention of several heads."""

import torch
import torch.nn as nn

DTYPE = torch.float16

batch = 4
heads = 16
length = 1024
depth = 64


class Model(nn.Module):
    def forward(self, q, k, v):
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        return torch.softmax(scores, dim=-1) @ v


def get_inputs():
    return [
        torch.randn(batch, heads, length, depth),
        torch.randn(batch, heads, length, depth),
        torch.randn(batch, heads, length, depth),
    ]


def get_init_inputs():
    return []
