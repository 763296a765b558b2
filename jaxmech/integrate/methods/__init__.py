"""Methods of integration: how a step is made.

`runge_kutta` has the explicit methods and embedded pairs, with the coefficients of `tableaus`. In
folders: `implicit/`, methods for stiff systems; `variational/`, symplectic ones.
"""
