"""`jaxmech report`: `page` puts together what `sections` and `media` make of a run.

All of them write HTML by `elements`, which escapes every text.
"""
