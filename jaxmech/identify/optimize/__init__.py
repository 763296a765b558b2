"""Optimization of the free numbers: `trust_region` or `gradient_descent`, step by step.

`loop` runs either of them from one or many starting points, and `checkpoint` stores its state so
that it can be resumed.
"""
