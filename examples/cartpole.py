# %% [markdown]
# # A cart with a pendulum: parameters from a recorded push
#
# A cart is pushed by a motor, whose force is known at the times at which the controller set it; in between it
# is held. Two sensors look on: the position of the cart, to half a millimetre, and the angle of the pendulum,
# to five milliradians. Which masses, which length, how much friction?
#
# The recordings are made here, with known parameters and noise, so that the answer can be checked.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm

jax.config.update("jax_enable_x64", True)


def lagrangian(q, v, t, p):
    swing = v[1] * p["length"]
    bob = jnp.array([v[0] + swing * jnp.cos(q[1]), swing * jnp.sin(q[1])])  # velocity [m/s]
    kinetic = 0.5 * p["cart"] * v[0] ** 2 + 0.5 * p["bob"] * bob @ bob
    return kinetic + p["bob"] * 9.81 * p["length"] * jnp.cos(q[1])


def force(q, v, t, p):
    """The push is a function of time: a recorded signal takes its place."""
    return jnp.stack([p["push"](t) - p["friction"] * v[0], -p["drag"] * v[1]])


system = jm.System(lagrangian, force=force, coordinates=("x", "theta"))
true = {"cart": 1.0, "bob": 0.2, "length": 0.5, "friction": 0.3, "drag": 0.01}

# %% [markdown]
# ## Two recordings, each with a push of its own

# %%
random = np.random.default_rng(0)
ts = np.linspace(0.0, 6.0, 301)


def record(start, period):
    """A recording of six seconds, from rest at an angle [rad]; the force changes once per period [s]."""
    times = np.arange(0.0, 6.0 + period, period)
    push = jm.Signal(times, random.normal(0.0, 4.0, len(times)), "hold")
    steps = jm.FixedSteps(per_save=4)
    sol = jm.simulate(system, [0.0, start], [0.0, 0.0], ts, true | {"push": push}, steps=steps)
    noise = random.normal(size=(len(ts), 2)) * [0.5e-3, 5e-3]
    return jm.Recording(ts, np.asarray(sol.q) + noise, sol.q[0], sol.v[0], inputs={"push": push})


recordings = [record(0.3, 0.25), record(0.6, 0.4)]

# %% [markdown]
# ## The fit
#
# From a guess that is off by a factor of two. Nothing is said about the noise of the sensors: it is estimated,
# one value for each.

# %%
guess = {"cart": 2.0, "bob": 0.1, "length": 0.8, "friction": 0.1, "drag": 0.05}
fit = jm.fit(system, recordings, guess, bounds=dict.fromkeys(guess, (0.0, None)))
print(fit)

for name, value in true.items():
    assert abs(fit.params[name] - value) < 0.02 * value

# %% [markdown]
# ## What the fit looks like

# %%
recording = recordings[1]
found = fit.params | {"push": recording.inputs["push"]}
sol = jm.simulate(system, recording.q0, recording.v0, ts, found, steps=jm.FixedSteps(per_save=4))
fig, (top, middle, bottom) = plt.subplots(3, 1, figsize=(8, 7), sharex=True, layout="constrained")
top.plot(ts, recording.observed[:, 0], ".", markersize=3, label="recorded")
top.plot(ts, sol["x"], label="fitted")
top.set(ylabel="x [m]")
top.legend()
middle.plot(ts, recording.observed[:, 1], ".", markersize=3)
middle.plot(ts, sol["theta"])
middle.set(ylabel="theta [rad]")
bottom.step(recording.inputs["push"].ts, recording.inputs["push"].values, where="post")
bottom.set(xlabel="time [s]", ylabel="push [N]")
plt.show()
