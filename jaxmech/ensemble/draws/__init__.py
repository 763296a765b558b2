"""The draws of a study: read `distributions`, `designs`, `plans`, `sampler`, in this order.

A variable has a distribution, one of `scipy.stats`, and all share a design, from which `designs`
makes points. `plans` lists the draws: the variables of the model, and the distribution of each. The
`sampler` draws any range of members. `inputs` are recorded and random inputs in a configuration.
"""
