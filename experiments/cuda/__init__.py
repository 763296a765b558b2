"""GPU kernels: what they cost to make, whether they agree with the CPU, how fast they are."""
