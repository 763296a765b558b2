"""The speed of batches compared with other implementations: `jaxmech bench`.

Read `settings` (the configuration), `cases` (the mechanisms) and `routes` (implementations) first.
`benchmarks` runs the parts, `contest` compares and times in the processes of `workers`; `report`
writes speed.json and speed.md. The routes are in `jax_routes`, `straight_line` (C
written by `c_source`) and `mujoco_rollout`, the gradients in `gradients`.
"""
