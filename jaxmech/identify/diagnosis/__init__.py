"""What is wrong with a fit: its warnings.

`misfit` tests whether the residuals are the noise that was stated, `exact_starts` whether initial
states that were not fitted are exact. `remarks` tests whether the integration is, and whether there
is a motion at all, and puts all warnings into words, except for that of the `horizon`, which is
computed when a user asks for it.
"""
