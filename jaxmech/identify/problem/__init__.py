"""The least-squares problem of a fit: free numbers, residuals and their reduction.

`parameters` and `bounds` map free numbers to parameters, `initial_states` to initial states;
`residuals` compares a motion with a recording, `least_squares` reduces that to a triangle, `setup`
builds the problem from the arguments of `fit`, and `checks` validates them.
"""
