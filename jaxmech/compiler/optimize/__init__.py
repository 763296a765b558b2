"""Simplifications of the graph while it is built.

`fold` is algebra on numbers, on integers as XLA does it, and `fold_booleans` the same for truth
values and constants. `fold_zeros` selects the
products with zero that may be folded: `nan_propagation` finds the NaN that reach a result,
`path_conditions` the conditions under which a value is used.
"""
