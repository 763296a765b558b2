"""Design of experiments.

`design` chooses initial states and inputs by the `information` that their recording would have,
under a `criterion`, within bounds and within the `budget` of an input, by a `search`; `choice`
chooses sensors or samples within a budget.
"""
