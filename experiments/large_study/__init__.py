"""Studies of millions of trajectories against the bare kernel: CPU seconds, memory, agreement."""
