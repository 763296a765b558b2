"""What the end of a fit says: intervals, undetermined parameters, and reasons to distrust it.

`normal_equations` eliminates the initial states, which leaves the `information` about the
parameters. `uncertainty` makes intervals of it; `identifiability` finds undetermined directions.
`density` is that of the posterior distribution. `misfit` tests whether residuals are noise, and
`remarks` puts this and all other warnings into words.
"""
