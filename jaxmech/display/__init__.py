"""Motions to look at: `animate` makes pictures and videos, `view` pages in three dimensions.

Both take the same subjects and motions, which `motions` checks; the drawing is in `jaxmech.plot`.
"""
