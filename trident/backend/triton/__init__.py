"""Triton's side of the back end: launches on CUDA, and `cpu/`, the Triton backend that runs kernels natively on the CPU."""
