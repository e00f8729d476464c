"""TTIR to LLVM IR: everything that imports torch_mlir, so import this package only when a kernel is compiled."""
