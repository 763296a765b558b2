"""Simplifications of the graph while it is built.

`fold` is algebra on numbers, `fold_booleans` the same for truth values, and `fold_constants`
evaluates operations on constants. `fold_zeros` decides which products with zero may be folded:
`nan_propagation` tells which NaN reach a result, `path_conditions` what holds where a value is
used.
"""
