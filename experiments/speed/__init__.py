"""The speed of batches against other ways to the same trajectories: `jaxmech bench`."""
