"""Noise of recordings that is not independent or not normal.

`losses` are for outliers, `autocorrelation` for noise that is correlated in time; `likelihood` is
the probability of the residuals under such noise, and `outliers` finds samples that do not agree
with it.
"""
