"""Find the free numbers: `levenberg_marquardt` or `gradient_descent`, one step at a time.

`loop` runs either of them from one or several starting points, `checkpoint` lets it resume.
"""
