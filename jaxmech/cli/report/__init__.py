"""`jaxmech report`: `page` combines the `sections` and `media` of a run.

All of them write HTML by `elements`, which escapes every text.
"""
