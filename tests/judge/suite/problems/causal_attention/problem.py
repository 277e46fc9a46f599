"""Attention in which a position sees itself and those before it."""

import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.bfloat16

batch = 8
heads = 16
length = 2048
head_size = 64


class Model(nn.Module):
    """softmax(q @ k.T / sqrt(head_size)) @ v under a causal mask; all (B, H, T, D)."""

    def forward(self, q, k, v):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_inputs():
    return [torch.randn(batch, heads, length, head_size) for _ in range(3)]


def get_init_inputs():
    return []
