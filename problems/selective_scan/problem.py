"""The recurrence of a state space model, whose step sizes follow from its input."""

import math

import torch
import torch.nn as nn
import torch.nn.functional as F

DTYPE = torch.bfloat16

batch_size = 64
sequence_length = 256
channels = 4096
state_size = 16


class Model(nn.Module):
    """h = exp(dt A) h + dt B x, y = C h + D x for each step, from h = 0, in float32.

    x and dt are (N, L, E), B and C (N, L, K), the state h is (N, E, K). dt becomes positive by a
    softplus; A = -exp(A_log) lies between -1 and -16.
    """

    def __init__(self, channels: int, state_size: int):
        super().__init__()
        self.A_log = nn.Parameter(torch.empty(channels, state_size).uniform_(0, math.log(16)))
        self.D = nn.Parameter(torch.empty(channels).uniform_(-1, 1))
        self.dt_bias = nn.Parameter(torch.empty(channels).uniform_(-4, -1))

    def forward(
        self, x: torch.Tensor, dt: torch.Tensor, B: torch.Tensor, C: torch.Tensor
    ) -> torch.Tensor:
        A = -torch.exp(self.A_log.float())
        dt = F.softplus(dt.float() + self.dt_bias.float()).unsqueeze(-1)
        steps = [dt, x.float().unsqueeze(-1), B.float().unsqueeze(-2), C.float().unsqueeze(-1)]
        h = A.new_zeros(x.shape[0], *A.shape)
        y = []
        for dt, x_t, B, C in zip(*(value.unbind(1) for value in steps), strict=True):
            h = torch.exp(dt * A) * h + dt * x_t * B
            y.append(h @ C)
        return (torch.stack(y, dim=1).squeeze(-1) + self.D.float() * x.float()).to(x.dtype)


def get_inputs():
    x = torch.randn(batch_size, sequence_length, channels)
    dt = torch.randn(batch_size, sequence_length, channels)
    B = torch.randn(batch_size, sequence_length, state_size)
    C = torch.randn(batch_size, sequence_length, state_size)
    return [x, dt, B, C]


def get_init_inputs():
    return [channels, state_size]
