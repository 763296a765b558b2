"""Find the free numbers: `optimizers` make one step at a time, `loop` runs and resumes them.

`loop` also has several starting points, and keeps the state of a fit in a folder.
"""
