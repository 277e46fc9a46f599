"""The GPUs of this machine: facts, lock, clocks."""
