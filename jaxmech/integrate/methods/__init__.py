"""Integration methods, which compute a step.

`runge_kutta` has the explicit methods and embedded pairs, and `explicit_stages` evaluates their
stages. `implicit` has the method for stiff systems, `rattle` a symplectic one, with a discrete
Lagrangian. The coefficients of all are in `tableaus`.
"""
