"""Find the free numbers: `levenberg_marquardt` or `gradient_descent`, one step at a time.

`loop` runs either of them, from the starting points of `multistart`, and `checkpoint` lets it
resume.
"""
