"""What the noise of recordings may be, besides independent and normal.

`losses` are for outliers, `autocorrelation` for noise that is correlated in time; `likelihood` is
the probability of the residuals under all of it, and `outliers` are samples that do not fit in.
"""
