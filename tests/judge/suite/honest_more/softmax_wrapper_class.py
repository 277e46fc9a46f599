"""A class that wraps the kernel, keeps what it chose for a shape, and is called through one."""

from dataclasses import dataclass, field

import torch
import triton
import triton.language as tl

PROBLEM = "row_softmax"


@triton.jit
def softmax_kernel(x_ptr, y_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, BLOCK)[None, :]
    mask = (row < rows) & (column < columns)
    x = tl.load(x_ptr + row * columns + column, mask=mask, other=float("-inf"))
    highest = tl.where(row < rows, tl.max(x, axis=1, keep_dims=True), 0.0)
    e = tl.exp(x - highest)
    tl.store(y_ptr + row * columns + column, e / tl.sum(e, axis=1, keep_dims=True), mask=mask)


@dataclass
class Softmax:
    lanes: int = 8192
    chosen: dict = field(default_factory=dict)

    def plan(self, columns: int) -> tuple[int, int]:
        if columns not in self.chosen:
            block = triton.next_power_of_2(columns)
            self.chosen[columns] = max(1, self.lanes // block), block
        return self.chosen[columns]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        rows, columns = x.shape
        at_once, block = self.plan(columns)
        y = torch.zeros(x.shape, dtype=x.dtype, device=x.device)
        grid = (triton.cdiv(rows, at_once),)
        softmax_kernel[grid](x, y, rows, columns, ROWS=at_once, BLOCK=block, num_warps=8)
        return y


softmax = Softmax()


def kernel_function(x: torch.Tensor) -> torch.Tensor:
    return softmax(x)
