"""Determined combinations: `search` proposes, `combinations` decides, `formula` prints."""
