# %% [markdown]
# # A clock's escapement: a pendulum that keeps its own amplitude
#
# A weight turns the escape wheel of a clock. An anchor, which swings with the pendulum, has two pins that dip into the gaps between
# the teeth in turn: one holds the wheel while the other lets a tooth pass. Sliding off its tooth, a pin gets a push, which
# makes good what the air takes from the pendulum. Wheel and pins touch and part, so both contacts are gaps that are never
# negative.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm

jax.config.update("jax_enable_x64", True)

TEETH = 18
PITCH = 2 * np.pi / TEETH
SPREAD = np.pi / 4  # of both pins from the vertical, seen from the wheel: 4 1/2 teeth in all
params = {
    "mass": 0.5,  # of the bob [kg]
    "length": 0.2485,  # of the pendulum [m]
    "wheel": 4e-6,  # inertia of the wheel [kg m^2]
    "torque": 2e-3,  # of the weight on the wheel [N m]
    "drag": 2.5e-3,  # of the air on the pendulum [N m s]
    "radius": 0.03,  # of the circle on which the pins are while the pendulum hangs [m]
    "play": 1.8e-3,  # from that circle to the middle of the teeth [m]
    "tooth": 2.5e-3,  # half of the height of a tooth [m]
}


def lagrangian(q, v, t, p):
    pendulum = 0.5 * p["mass"] * (p["length"] * v[0]) ** 2
    height = -p["length"] * jnp.cos(q[0])
    return pendulum + 0.5 * p["wheel"] * v[1] ** 2 - p["mass"] * 9.81 * height


def force(q, v, t, p):
    return jnp.stack([-p["drag"] * v[0], p["torque"]])


def edge(angle, p):
    """The radius of the wheel where a pin touches it, at an angle on the wheel."""
    return p["radius"] - p["play"] + p["tooth"] * jnp.cos(TEETH * angle)


def pin(side, swing, p):
    """The place of a pin, -1 for the left one, seen from the axle of the wheel."""
    pivot = jnp.array([0.0, p["radius"] / np.cos(SPREAD)])
    at = p["radius"] * jnp.array([side * np.sin(SPREAD), np.cos(SPREAD)]) - pivot
    c, s = jnp.cos(swing), jnp.sin(swing)
    return pivot + jnp.array([[c, -s], [s, c]]) @ at


def clearances(q, t, p):
    """How far both pins are from the wheel, which turns counterclockwise."""
    places = [pin(side, q[0], p) for side in (-1, 1)]
    return jnp.stack([jnp.sqrt(x @ x) - edge(jnp.arctan2(x[0], x[1]) + q[1], p) for x in places])


clock = jm.System(
    lagrangian,
    [jm.Unilateral(clearances, name="pins")],
    force=force,
    coordinates={"pendulum": "rad", "wheel": "rad"},
)

# %% [markdown]
# ## Every start leads to the same swing
#
# Three pendulums are let go at different angles, each with the wheel where both pins are farthest from it.


# %%
def start(swing):
    turns = jnp.linspace(0.0, PITCH, 401)
    space = jax.vmap(lambda turn: clearances(jnp.stack([swing, turn]), 0.0, params).min())(turns)
    return jnp.stack([swing, turns[space.argmax()]])


ts = np.linspace(0.0, 150.0, 6001)
steps = jm.Adaptive(rtol=1e-8, atol=1e-10)


def run(swing, torque):
    p = params | {"torque": torque}
    return jm.simulate(clock, start(swing), jnp.zeros(2), ts, p, steps=steps)


swings = jnp.array([0.05, 0.09, 0.13])
sols = jax.vmap(lambda swing: run(swing, params["torque"]))(swings)


def periods(angle):
    """The times between passages of the vertical in the same direction."""
    k = np.flatnonzero((angle[:-1] < 0) & (angle[1:] >= 0))
    return np.diff(ts[k] - angle[k] * (ts[k + 1] - ts[k]) / (angle[k + 1] - angle[k]))


angles = np.asarray(sols["pendulum"])
late = [periods(angle)[-20:].mean() for angle in angles]
amplitudes = np.abs(angles[:, -400:]).max(axis=1)
teeth = (np.asarray(sols["wheel"])[:, -1] - np.asarray(sols["wheel"])[:, 0]) / PITCH
free = 2 * np.pi * np.sqrt(params["length"] / 9.81)
print("period", np.round(late, 6), f"s; without an escapement {free:.6f} s")
print("amplitude", np.round(amplitudes, 5), "rad; teeth", np.round(teeth, 1))
assert np.ptp(late) < 1e-5
assert np.ptp(amplitudes) < 2e-4
assert np.abs(teeth - 150.0 / late[0]).max() < 2  # a tooth for each swing to and fro

fig, (left, middle, right) = plt.subplots(1, 3, figsize=(12, 4), layout="constrained")
q = np.asarray(sols.q[1, -1])
around = np.linspace(0.0, 2 * np.pi, 721)
radii = edge(around, params)
left.fill(1e3 * radii * np.sin(around - q[1]), 1e3 * radii * np.cos(around - q[1]), alpha=0.4)
pivot = np.array([0.0, params["radius"] / np.cos(SPREAD)])
for side in (-1, 1):
    x = np.asarray(pin(side, q[0], params))
    left.plot(*(1e3 * np.stack([pivot, x])).T, color="0.3")
    left.plot(*(1e3 * x), "o", color="C1")
left.set(xlabel="x [mm]", ylabel="y [mm]", aspect="equal", title="wheel and anchor")
for angle in angles:
    middle.plot(ts[:-1:40], np.abs(angle[:-1]).reshape(-1, 40).max(axis=1))
middle.set(xlabel="t [s]", ylabel="amplitude [rad]", title="three starts")
window = slice(-81, None)
right.plot(ts[window], angles[1, window] / amplitudes[1], label="pendulum / amplitude")
turned = np.asarray(sols["wheel"])[1, window]
right.plot(ts[window], (turned - turned[0]) / PITCH, label="wheel [teeth]")
right.set(xlabel="t [s]", title="two seconds")
right.legend()
plt.show()

# %% [markdown]
# ## Where the energy goes
#
# The weight gives the wheel the same energy for each tooth. A part is lost where the wheel hits a pin, which stops it without
# a rebound, and the air takes the rest. The states before and after all impacts are in the solution.

# %%
ts = np.linspace(0.0, 55.0, 11001)
sol = run(0.0635, params["torque"])


def energy(q, v):
    zero = jnp.zeros(())
    return v @ jax.grad(lagrangian, argnums=1)(q, v, zero, params) - lagrangian(q, v, zero, params)


lost = 0.0
for name in ("pins[0] closes", "pins[1] closes"):
    hits = sol.events[name]
    count = int(hits.count)
    assert count <= len(hits.t)
    before, after = (jax.vmap(energy)(hits.q[:count], v[:count]) for v in (hits.v, hits.v_after))
    lost += float((before - after).sum())
given = params["torque"] * float(sol["wheel"][-1] - sol["wheel"][0])
air = params["drag"] * float(jnp.trapezoid(sol["pendulum.rate"] ** 2, ts))
kept = float(energy(sol.q[-1], sol.v[-1]) - energy(sol.q[0], sol.v[0]))
print(f"of {1e3 * given:.3f} mJ from the weight {lost / given:.1%} are lost in impacts,")
print(
    f"{air / given:.1%} in the air, {kept / given:.1%} are kept; missing {given - lost - air - kept:.1e} J"
)
assert abs(given - lost - air - kept) < 1e-4 * given

# %% [markdown]
# ## A heavier weight
#
# The wheel pushes the pins back, so that a heavier weight makes the pendulum swing farther and faster: a batch of clocks
# shows by how much they gain in a day.

# %%
ts = np.linspace(0.0, 150.0, 6001)
torques = params["torque"] * np.linspace(0.9, 1.1, 5)
sols = jax.vmap(lambda torque: run(0.0635, torque))(torques)
rates = np.array([periods(np.asarray(angle))[-20:].mean() for angle in sols["pendulum"]])
gains = 86400 * (rates[2] / rates - 1)
for torque, gain in zip(torques, gains, strict=True):
    print(f"{1e3 * torque:.1f} mN m: {gain:+6.1f} s a day")
assert (np.diff(gains) > 0).all()
