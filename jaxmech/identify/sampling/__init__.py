"""Fits as functions of their unknowns, and samples of their posterior distribution.

`density` has the residuals, their derivatives and the density, `posterior` the samples.
"""
