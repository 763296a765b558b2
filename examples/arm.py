# %% [markdown]
# # A robot arm with a load that nobody weighed
#
# A six-axis arm from a URDF file lifts a load of two kilograms. The controller computes the torques of its path
# in advance, and servos correct what is left. How far off is the hand if the load weighs one kilogram, or
# three? A thousand loads in one call answer that, and a derivative of the whole motion says it in advance.
#
# The file [arm.urdf](arm.urdf) is next to this program. Reading it needs `pip install 'jaxmech[mujoco]'`.

# %%
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm
from jaxmech.interop.mujoco import from_mjcf

jax.config.update("jax_enable_x64", True)

folder = Path() if Path("arm.urdf").is_file() else Path("examples")  # or in the root of a clone
robot = from_mjcf(folder / "arm.urdf", params=("mass",))
arm, nominal = robot.mechanism.system, robot.mechanism.params
print(robot.mechanism)

# %% [markdown]
# ## The torques of a path
#
# The hand goes from one pose to another within a second and rests there for another one. `inverse_dynamics`
# gives the torque of each joint for a path q(t).

# %%
start = jnp.array([-0.8, -0.2, 0.9, 0.0, -0.5, 0.0])
goal = jnp.array([0.7, 0.9, -1.2, 0.6, -0.4, 1.0])


def path(t, p):
    s = jnp.clip(t, 0.0, 1.0)
    return start + (goal - start) * s**3 * (10 - 15 * s + 6 * s**2)  # starts and ends at rest


ts = jnp.linspace(0.0, 2.0, 201)
motion = jm.control.inverse_dynamics(arm, path, ts, nominal, actuators=arm.coordinates)

fig, axes = plt.subplots(figsize=(8, 4), layout="constrained")
for name, torque in zip(arm.coordinates, motion.u.T, strict=True):
    axes.plot(ts, torque, label=name.removesuffix(".angle"))
axes.set(xlabel="time [s]", ylabel="torque [N m]")
axes.legend(ncols=3)
plt.show()

# %% [markdown]
# At rest a joint carries the moments of the weights behind it, which follow from the heights of the centres of
# mass alone:

# %%
centers = {
    "column": (0, 0, -0.05),
    "upper_arm": (0.2, 0, 0),
    "forearm": (0.18, 0, 0),
    "wrist": (0, 0, 0),
    "hand": (0.05, 0, 0),
    "payload": (0.1, 0, 0),
}


def potential(q):
    heights = {name: robot.mechanism.point(name, x, q)[2] for name, x in centers.items()}
    return sum(9.81 * nominal[f"mass.{name}"] * z for name, z in heights.items())


weights = jax.grad(potential)(goal)
print("torques at the end   ", motion.u[-1].round(3), "N m")
print("moments of the weight", weights.round(3), "N m")
np.testing.assert_allclose(motion.u[-1], weights, atol=1e-9)

# %% [markdown]
# ## A thousand loads
#
# The servos know the torques for two kilograms and correct the rest by stiffness and damping.

# %%
stiffness = jnp.array([3000.0, 3000.0, 2000.0, 100.0, 100.0, 20.0])  # [N m/rad]
damping = jnp.array([200.0, 200.0, 100.0, 1.5, 1.5, 0.2])  # [N m s/rad]


def servos(q, v, t, p):
    wanted, rate = jax.jvp(lambda t: path(t, p), (t,), (jnp.ones_like(t),))
    return p["torques"](t) + stiffness * (wanted - q) + damping * (rate - v)


driven = replace(arm, force=servos)
torques = jm.Signal(ts, motion.u, "cubic")


def hand(load):
    """Path of the load [m] and the error of its place [m], for a mass [kg]."""
    params = nominal | {"mass.payload": load, "torques": torques}
    sol = jm.simulate(driven, start, jnp.zeros(6), ts, params, steps=jm.FixedSteps(per_save=10))
    place = jax.vmap(lambda q: robot.mechanism.point("payload", (0.1, 0, 0), q))
    return place(sol.q), place(sol.q) - place(motion.q)


loads = jnp.linspace(0.0, 5.0, 1001)
paths, errors = jax.jit(jax.vmap(hand))(loads)
exact = jnp.abs(errors[400]).max()
print(f"with 2 kg the load stays within {1e6 * exact:.2f} µm of its path")
assert exact < 1e-4

# %% [markdown]
# ## The derivative of the whole motion
#
# How much does the hand sink for each kilogram more? The derivative goes through the motion, servos included.
# At rest there is a closed form: the weight of the load, carried by the springs of the servos and by the weights that
# move with the arm,
#
# $$ \frac{dz}{dm} = -g\, J_z\, (K + \partial G / \partial q)^{-1} J_z^T, $$
#
# with the moments G of the weights and the derivative of the height by the coordinates, J_z.

# %%
slope = jax.jit(jax.jacfwd(lambda load: hand(load)[0][:, 2]))(2.0)
up = jax.grad(lambda q: robot.mechanism.point("payload", (0.1, 0, 0), q)[2])(goal)
compliance = jnp.linalg.inv(jnp.diag(stiffness) + jax.hessian(potential)(goal))
static = -9.81 * up @ compliance @ up
print(f"by the motion {1e3 * slope[-1]:.5f} mm/kg, closed form {1e3 * static:.5f} mm/kg")
assert abs(slope[-1] / static - 1) < 1e-3

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
for k in (200, 400, 600, 800):
    left.plot(ts, 1e3 * errors[k, :, 2], label=f"{loads[k]:.0f} kg")
left.set(xlabel="time [s]", ylabel="height above the path [mm]")
left.legend()
right.plot(loads, 1e3 * errors[:, -1, 2], label="1,001 loads")
right.plot(loads, 1e3 * slope[-1] * (loads - 2.0), "--", label="derivative at 2 kg")
right.set(xlabel="load [kg]", ylabel="height at the end [mm]")
right.legend()
plt.show()
