"""Code generation: from a scalar graph to code that runs over a batch.

`batch_primitive` has the rules of all primitives over a batch, `primitive` makes the call of a
graph such a primitive, with a back-end for each platform, and `partitioning` divides its batch
among devices. `llvm/` writes LLVM assembly, `cpu/` compiles and calls it, and `cuda/` does so for
GPUs; `disk_cache` stores compiled code.
"""
