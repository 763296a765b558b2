"""A study of millions of trajectories beside the bare kernel: CPU seconds, memory, agreement."""
