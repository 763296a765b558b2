"""The distribution of the blocks of a study: in this process (`here`), or among workers.

`plan` is a study that was checked, ready to be computed. `tasks` is a map over the workers of a
Dask cluster that survives lost ones; `connect` finds or starts them as `settings` say, `pinning`
gives each its cores and `precision` its precision; `worker` is what each does, `checks` what is
asked of it first, and `away` hands out the blocks of a study and adds up what comes back.
"""
