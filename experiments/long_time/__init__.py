"""Energy errors over ten million steps."""
