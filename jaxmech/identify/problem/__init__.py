"""From recordings to a least-squares problem, in the order of reading.

`transforms` map unknowns to `parameters` within their bounds, those of `body_inertia` to bodies
that exist. `least_squares` has the residuals of all segments as a function of all unknowns, those
of the initial states too, and `rows` makes of them what an optimizer sees, under the `noise` of the
measurements, of which `sensor_noise` estimates what is not stated. `starts` are those of the
recordings, `steps` chooses how finely motions are simulated, and `setup` builds all of it.
"""
