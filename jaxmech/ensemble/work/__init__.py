"""The distribution of the blocks of a study: in this process (`here`), or among workers.

`plan` is a study that was checked, ready to be computed. `tasks` is a map over the workers of a
Dask cluster that survives lost ones; `connect` finds or starts them as `settings` say, with
cores of their own, and checks them, and `schedulers` connects to those that run, with time limits
and certificates. `worker` computes blocks in each of them, and `away` distributes the
blocks and merges the results.
"""
