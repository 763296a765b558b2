"""The members of a study, motions as functions of their draws: read `base` first.

`observed` are the settings of quantities and events, `quantities` all names that arrays have, and
`trajectory` is a motion with them.
"""
