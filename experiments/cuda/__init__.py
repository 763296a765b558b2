"""GPU kernels: their cost of compilation, their agreement with the CPU, their speed."""
