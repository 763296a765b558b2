"""The members of a study, motions as functions of their draws: read `base` first.

`trajectory` is a motion, with its `observed` quantities, whose names are those of arrays, and its
`events`, among them the passages of thresholds between saved times.
"""
