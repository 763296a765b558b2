"""Experiments that are worth making: `design` and the choice of sensors.

A `criterion` judges the information of an experiment within the limits of its inputs, and `search`
finds the best.
"""
