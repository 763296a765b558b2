"""Optimization of the free numbers: `trust_region` or `gradient_descent`, step by step.

`condensed_steps` minimizes where segments must join. `loop` runs any of them in rounds, and from
many starting points.
"""
