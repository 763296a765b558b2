"""What is asked of runs: `replay` one trajectory, `open` all of them, `compare_runs`."""
