"""Studies on clusters: scaling on this machine, and a simulation of a thousand workers."""
