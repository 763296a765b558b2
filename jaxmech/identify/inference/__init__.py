"""Intervals of a fit, and its undetermined parameters.

`normal_equations` eliminates the initial states, which leaves the `information` about the
parameters. `uncertainty` makes intervals of it, and `identifiability` finds undetermined
directions and, by a `sparse_null_space`, `combinations` that are determined: short `formulas`, or
`groups` with a meaning.
`independence` tests whether residuals are noise; where they are not, `blocks` of them give
intervals. `robust` gives those of fits with robust losses.
"""
