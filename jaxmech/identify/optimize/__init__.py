"""Optimization of the free numbers: `trust_region` or `gradient_descent`, step by step.

`condensed_steps` minimizes where segments must join.
`loop` runs any of them from one or many starting points, and `checkpoint` stores its state so
that it can be resumed.
"""
