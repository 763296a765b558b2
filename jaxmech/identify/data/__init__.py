"""Measured motion: `recording` first, then `table` and `files` (CSV and others) and `segments`."""
