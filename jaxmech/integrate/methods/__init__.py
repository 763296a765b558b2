"""Integration methods, which compute a step.

`runge_kutta` has the explicit methods and embedded pairs, and `explicit_stages` evaluates their
stages. `implicit` has the methods for stiff systems, which solve the linear systems of
`implicit_equations`; `rattle` a symplectic one, with a discrete Lagrangian, whose equations
`newton` solves. The coefficients of all are in `tableaus`.
"""
