"""The draws of a study: read `distributions`, `designs`, `sampler`, in this order.

A variable has a distribution, one of `scipy.stats`, and all share a design, from which `designs`
makes points. The `sampler` lists the variables of a model, and draws any range of members. `inputs`
are recorded and random inputs in a configuration.
"""
