"""Probabilities of failure beside brute force."""
