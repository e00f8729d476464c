"""Native code: the only package that uses llvmlite. Importing it does nothing by itself."""
