"""Probabilities of failure, down to 1e-9: read `settings`, `probability`, `margin` in this order.

`settings` is the table of a configuration. `probability` computes a result, which `result` holds
and `folder` stores. `margin` is the margin of one motion as a function of its draws, `limit_state`
that of many points of standard normal space, which `standard_space` maps to the draws; `blocks`
makes it, and computes it on a cluster.

`design_points` searches for the most probable failures. The methods are in `sampling` (by
OpenTURNS), `rays` and `subset`, which ends with `bridge`; their results are `estimates`.
`sensitivities` are those of log p to the distributions, and `shape` tells whether a limit state is
flat, discontinuous or has several regions. Only the table `failure` of a study and the command know
of this folder.
"""
