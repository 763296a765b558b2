"""The measured single and double pendulum: which friction law they follow, and its parameters.

The recordings are free swings of a real pendulum, encoders at 1 kHz, cut into segments: those of
dynamicslab/MultiArm-Pendulum (MIT licence, Copyright 2022 dynamicslab), described by Kaheman and
others, "The experimental multi-arm pendulum on a cart: a benchmark system for chaos, learning, and
control" (2022). They are not part of this project. The segments follow one another, so that each
swings slower than the one before; the last are for validation. `published_estimate` in a file are
the parameters that the authors fitted.
"""
