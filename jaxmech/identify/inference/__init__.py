"""Intervals of a fit, tests of the model, and what the recordings leave undetermined.

`normal_equations` eliminates the initial states, `uncertainty` makes intervals, `goodness_of_fit`
tests the fit, and `identifiability` finds undetermined directions, which `formulas/` writes as
formulas.
"""
