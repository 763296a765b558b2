"""What is asked of a run that was computed: `replay` one trajectory, `dataset` all, `compare` two."""
