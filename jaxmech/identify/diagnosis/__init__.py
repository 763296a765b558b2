"""What is wrong with a fit: its warnings.

`misfit` tests whether the residuals are the noise that was stated, and `exact_starts` whether
initial states that were not fitted are exact. `remarks` puts these and all other warnings into
words, except for that of the `horizon`, which is computed when a user asks for it.
"""
