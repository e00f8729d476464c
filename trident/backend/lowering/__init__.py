"""From a trace to LLVM IR: one rule per operation, one file per family."""
