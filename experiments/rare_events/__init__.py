"""Probabilities of failure beside OpenTURNS and brute force."""
