"""Probabilities of failure, down to 1e-9: read `probability`, `margin`, `limit_state`.

`probability` computes the failure of a study and stores the `result`. `margin` is the margin of one
motion as a function of its draws, and `limit_state` that of many points of standard normal space.
`design_points` searches for the most probable failures, and the methods are in `sampling`.
"""
