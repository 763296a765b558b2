"""From a scalar graph to code that runs over a batch.

`primitive` makes it a JAX primitive, with a back-end for each platform, and `partitioning` divides
its batch among devices. `llvm/` writes LLVM assembly, `cpu/` compiles and calls it, and `cuda/`
does so for GPUs; `disk_cache` keeps what was compiled.
"""
