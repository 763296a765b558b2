"""Inputs of studies: read `settings`, `processes`, `numbers`, `reading`, in this order.

`settings` is the table of a recorded input in a configuration, `processes` has those of random
ones. `numbers` makes the number of a file a variable of the study where an input has several files,
and `reading` reads the samples.
"""
