"""Code generation: from a scalar graph to code that runs over a batch.

`primitive` has the rules of a call over a batch, with a back-end for each platform, and
`sharding` divides its batch among devices. `llvm/` writes LLVM assembly, `cpu` compiles and
calls it, and `cuda` does so for GPUs, where `self_test` decides whether kernels may be used;
`disk_cache` stores compiled code.
"""
