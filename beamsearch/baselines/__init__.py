"""What a kernel is held against: eager, torch.compile and its own Triton, the floor."""
