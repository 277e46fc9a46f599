"""A linear attention whose state forgets by a gate and is corrected towards each new value."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.bfloat16

batch_size = 32
sequence_length = 256
num_heads = 32
key_dim = 128
value_dim = 128


class Model(nn.Module):
    """S = g S, S = S + beta (v - S k) k^T, o = S q for each head and step, from S = 0, in float32.

    Queries and keys (N, L, H, K) are brought to length 1; values are (N, L, H, V), the gates'
    inputs a and b (N, L, H), the state S is (N, H, V, K).
    g = exp(-exp(A_log) softplus(a + dt_bias)) and beta = sigmoid(b) lie between 0 and 1.
    """

    def __init__(self, num_heads: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.A_log = nn.Parameter(torch.empty(num_heads).uniform_(0, math.log(16)))
        self.dt_bias = nn.Parameter(torch.empty(num_heads).uniform_(-6, -3))

    def unit(self, x: torch.Tensor) -> torch.Tensor:
        return x * torch.rsqrt(x.square().sum(-1, keepdim=True) + self.eps)

    def forward(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
    ) -> torch.Tensor:
        g = torch.exp(-self.A_log.float().exp() * F.softplus(a.float() + self.dt_bias.float()))
        beta = torch.sigmoid(b.float())
        steps = [self.unit(query.float()), self.unit(key.float()), value.float()]
        steps += [g.unsqueeze(-1), beta.unsqueeze(-1)]
        S = g.new_zeros(*value.shape[:1], *value.shape[2:], key.shape[-1])
        o = []
        for q, k, v, g, beta in zip(*(x.unsqueeze(-1).unbind(1) for x in steps), strict=True):
            S = g * S
            S = S + beta * (v - S @ k) @ k.mT
            o.append(S @ q)
        return torch.stack(o, dim=1).squeeze(-1).to(value.dtype)


def get_inputs():
    query = torch.randn(batch_size, sequence_length, num_heads, key_dim)
    key = torch.randn(batch_size, sequence_length, num_heads, key_dim)
    value = torch.randn(batch_size, sequence_length, num_heads, value_dim)
    a = torch.randn(batch_size, sequence_length, num_heads)
    b = torch.randn(batch_size, sequence_length, num_heads)
    return [query, key, value, a, b]


def get_init_inputs():
    return [num_heads]
