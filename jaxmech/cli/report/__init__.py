"""`jaxmech report`: one page about a study, a fit, or a probability of failure."""
