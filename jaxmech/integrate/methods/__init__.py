"""Integration methods, which compute a step.

`runge_kutta` has the explicit methods and embedded pairs, with the coefficients of `tableaus`. A
stage is evaluated in one way, in the loops of `explicit_step` and, with an error estimate, of
`explicit_pair`. In folders: `implicit/`, methods for stiff systems; `variational/`, symplectic
ones.
"""
