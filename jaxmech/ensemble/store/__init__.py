"""The run folder of a study: read `folder`, `layout`, `results`, in this order.

`folder` creates, continues and repairs it, and records the origin of the results, `layout` has its
arrays, and `checksums` the digests of its files. `results` reads it, and compares what it reads.
"""
