"""Friction laws and parameters of a measured single, double and triple pendulum.

The recordings are free swings of a real pendulum with encoders read at 1 kHz, cut into segments.
They are those of dynamicslab/MultiArm-Pendulum (MIT licence, Copyright 2022 dynamicslab), described
by Kaheman and others, "The experimental multi-arm pendulum on a cart: a benchmark system for chaos,
learning, and control" (2022), and are not part of this project. The segments follow one another in
time, each with a smaller amplitude than the one before; the last ones are for validation. In a file
`published_estimate` holds the parameters that the authors fitted.
"""
