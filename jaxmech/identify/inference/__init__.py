"""Intervals of a fit, and its undetermined parameters.

`normal_equations` eliminates the initial states, which leaves the `information` about the
parameters. `uncertainty` makes intervals of it, and `identifiability` finds undetermined
directions, and groups of parameters with a meaning; `combinations` that are determined are short
`formulas`. Where residuals are not independent, `blocks` of them give intervals. `robust` gives
those of fits with robust losses.
"""
