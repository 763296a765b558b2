"""Intervals of a fit, tests of the model, and what the recordings leave undetermined.

`information` eliminates the initial states and splits what is left by its directions.
`uncertainty` makes intervals of it, `goodness_of_fit` tests the fit and warns, and
`identifiability` says what is undetermined, and by `formula_search` which `combinations` are not.
"""
