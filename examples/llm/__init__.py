"""Two small LLM implementations in plain PyTorch with user-written Triton kernels, shared by the examples and benchmarks."""
