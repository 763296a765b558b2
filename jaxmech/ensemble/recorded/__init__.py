"""Recorded inputs of studies: read `settings`, `numbers`, `reading`, in this order.

`settings` is the table of an input in a configuration. `numbers` makes the number of a file a
variable of the study where an input has several files, and `reading` reads the samples.
"""
