"""Optimization of the free numbers: the steps of a `trust_region`.

`condensed_steps` minimizes where segments must join. `loop` runs both in rounds, and from many
starting points.
"""
