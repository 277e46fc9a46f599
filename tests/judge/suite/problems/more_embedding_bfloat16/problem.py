"""Rows of a table, taken by integers."""

import torch
import torch.nn as nn

DTYPE = torch.bfloat16

tokens = 65536
vocabulary = 32000
width = 1024


class Model(nn.Module):
    def __init__(self, vocabulary, width):
        super().__init__()
        self.table = nn.Embedding(vocabulary, width)

    def forward(self, index):
        return self.table(index)


def get_inputs():
    return [torch.randint(0, vocabulary, (tokens,))]


def get_init_inputs():
    return [vocabulary, width]
