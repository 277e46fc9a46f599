"""Causal attention of several heads, positions before heads."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

batch = 4
length = 2048
heads = 16
depth = 64


class Model(nn.Module):
    def forward(self, q, k, v):
        q, k, v = (x.transpose(1, 2) for x in (q, k, v))
        scores = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        later = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
        return (torch.softmax(scores.masked_fill(later, float("-inf")), -1) @ v).transpose(1, 2)


def get_inputs():
    return [
        torch.randn(batch, length, heads, depth),
        torch.randn(batch, length, heads, depth),
        torch.randn(batch, length, heads, depth),
    ]


def get_init_inputs():
    return []
