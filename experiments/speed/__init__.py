"""The speed of batches compared with other implementations: `jaxmech bench`.

Read `settings` (what can be configured), `cases` (the mechanisms) and `routes` (implementations)
first. `benchmarks` runs the parts, `measure` compares and times, `workers` are the processes that
routes run in, `report` and `charts` write the results. The routes are in `jax_routes`,
`straight_line` (C written by `c_source`) and `mujoco_rollout`, the gradients in `gradients`.
"""
