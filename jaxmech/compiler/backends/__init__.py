"""From a scalar graph to code that runs over a batch.

`batch` chooses the back-end, `primitive` makes its code a JAX primitive, `llvm/` writes LLVM
assembly, and `cpu/` compiles and calls it.
"""
