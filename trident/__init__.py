"""Trident: a tracing JIT for the host code of PyTorch programs that launch Triton kernels."""
