"""From the graph to code that runs: `primitive` is the call as a JAX primitive.

`llvm/` writes LLVM assembly, which `cpu/` compiles and hands to XLA as a foreign function; `xla`
writes JAX operations instead, for other platforms.
"""
