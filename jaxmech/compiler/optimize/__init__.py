"""Simplifications of the graph while it is built.

`fold` removes zeros, ones and signs, `fold_booleans` does the same for truth values, `constants`
evaluates operations on constants, and `fold_zeros` decides which products with zero may be folded.
"""
