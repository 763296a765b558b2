"""Probabilities of failure, down to 1e-9: read `probability`, `margin`, `limit_state`.

`probability` computes the failure of a study, a `result` that `folder` stores. `margin` is the
margin of one motion as a function of its draws, and `limit_state` that of many points of standard
normal space, here or on a cluster; `standard_space` maps them to the draws. `design_points`
searches for the most probable failures. The methods are in `sampling`, by OpenTURNS, and `subset`.
Only the command knows of this folder.
"""
