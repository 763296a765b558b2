"""The blocks of a study on the workers of a Dask cluster.

`connect` finds or starts workers as `settings` say, with cores of their own, time limits and
certificates, and checks them. `tasks` is a map over them that survives lost ones, and `workers`
computes blocks in each of them, and merges the results here.
"""
