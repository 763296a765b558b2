"""Simplifications of the graph while it is built.

`fold` is algebra on numbers, on integers as XLA does it, and on truth values. `fold_zeros` selects
the products with zero that may be folded, by the NaN that reach a result, and `path_conditions`
finds the conditions under which a value is used.
"""
