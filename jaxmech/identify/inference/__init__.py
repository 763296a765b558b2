"""What the end of a fit says: intervals, undetermined parameters, and reasons to distrust it.

`normal_equations` makes the rows of the last step, `uncertainty` covariances of them,
`identifiability` finds undetermined directions. `density` is that of the posterior distribution.
`misfit` tests whether residuals are noise, and `remarks` puts all warnings into words.
"""
