"""The least-squares problem of a fit: free numbers, residuals and their reduction.

`parameters` maps free numbers to parameters by `transforms`, those of a body by `body_inertia`;
`initial_states` maps them to initial states;
`least_squares` compares motions with recordings, `condensing` eliminates states between segments,
`rows` reduces residuals and derivatives,
`sensor_noise` weighs the sensors, `steps` chooses the fixed steps and judges them, and
`setup` builds the problem from the arguments of `fit`.
"""
