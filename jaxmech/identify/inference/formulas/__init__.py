"""Determined combinations: `search` proposes, `combinations` decides, `formula` prints.

The search goes along the directions of `sparse_null_space`.
"""
