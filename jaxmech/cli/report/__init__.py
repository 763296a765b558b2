"""`jaxmech report`: `page` combines the `sections` about a run with its pictures and animations.

Both write HTML by `elements`, which escapes every text.
"""
