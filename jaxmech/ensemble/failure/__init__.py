"""Probabilities of failure, down to 1e-9.

`limit_state` has the margin of one motion as a function of its draws, and of many points of
standard normal space; `methods` search for the most probable failures, and estimate probabilities,
and `probability` computes the failure of a study with them, and stores the result.
"""
