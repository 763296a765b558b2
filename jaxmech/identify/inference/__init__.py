"""Intervals of a fit, tests of the model, and what the recordings leave undetermined.

`normal_equations` eliminates the initial states, `uncertainty` and `covariances` make intervals,
`goodness_of_fit` and `start_test` test the fit, and `identifiability` finds undetermined
directions, which `formulas/` writes as formulas.
"""
