"""The nearest state on the constraints: `point` is the search, `known` the same on the host.

`assemble` uses `point` under `jit` and `vmap`, and `known` where all numbers are known.
"""
