"""Fits beside `scipy.optimize.least_squares` over a jitted Runge-Kutta method written by hand."""
