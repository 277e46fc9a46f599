"""The Triton code that `torch.compile` generates, as first kernels."""
