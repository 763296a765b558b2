"""What is wrong with a fit: its warnings.

`misfit` tests whether the residuals are the noise that was stated, `exact_starts` whether
initial states that were not fitted are exact, `coarse_steps` whether the integration is, and
`lost_in_noise` whether there is a motion at all. `remarks` puts these and all other warnings into
words, except for that of the `horizon`, which is computed when a user asks for it.
"""
