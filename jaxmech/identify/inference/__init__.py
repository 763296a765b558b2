"""Intervals of a fit, tests of the model, and its undetermined parameters.

`normal_equations` eliminates the initial states, which leaves the `information` about the
parameters. `uncertainty` makes intervals of it, `goodness_of_fit` tests the fit, and
`identifiability` finds undetermined directions, which `weak_directions` puts into words and
`formulas/` into formulas.
"""
