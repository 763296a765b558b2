"""The run folder of a study: read `folder`, `layout`, `marks`, `results`, in this order.

`folder` creates and continues it, and records the origin of the results, `layout` has its arrays,
`marks` tell which blocks are finished, and `results` reads it.
"""
