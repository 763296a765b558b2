# %% [markdown]
# # A leg with a closed loop lands
#
# The leg of a small robot has both motors at the hip: two thighs, two shanks, one foot. The robot lands on it at
# 1.5 m/s, with a load that differs from time to time. How deep does it go, and what do the pins carry? The loop is
# closed by constraints, to round-off in every step, so that the force in each pin is a result and not the stretch
# of a stiff spring. The foot is pinned to the ground: where the pin pulled, a real foot would lift off.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm
from jaxmech import parts as jp

jax.config.update("jax_enable_x64", True)

thigh, shank, apart = 0.14, 0.26, 0.04  # lengths, and half the distance of the motors [m]


def rod(name, length, mass):
    """A slender rod, its reference point in its middle."""
    return jp.planar_body(name, mass=mass, inertia=mass * length**2 / 12)


trunk = jp.planar_body("trunk", mass="load", inertia=0.05)
thighs = {side: rod(f"thigh {side}", thigh, 0.15) for side in "ab"}
shanks = {side: rod(f"shank {side}", shank, 0.10) for side in "ab"}
joints = [jp.prismatic("guide", jp.ground, (0, 0), trunk, (0, 0), axis=(0, 1))]
servos = []
for side, sign in (("a", -1), ("b", 1)):
    upper, lower = thighs[side], shanks[side]
    hip = jp.revolute(f"hip {side}", trunk, (sign * apart, 0), upper, (-thigh / 2, 0))
    knee = jp.revolute(f"knee {side}", upper, (thigh / 2, 0), lower, (-shank / 2, 0))
    foot = jp.revolute(f"foot {side}", jp.ground, (0, 0), lower, (shank / 2, 0))
    joints += [hip, knee, foot]
    target = -np.pi / 2 + sign * 0.9  # the thighs point outwards and down
    servos += [jp.servo(f"motor {side}", hip, target=target, stiffness="kp", damping="kd")]

leg = jp.Mechanism(
    [trunk, *thighs.values(), *shanks.values()],
    joints,
    [jp.gravity(), *servos],
    params={"load": 6.0, "kp": 40.0, "kd": 1.2},
)
print(leg)

# %% [markdown]
# ## One landing
#
# The foot touches down at time zero with the servos at their targets; the trunk comes down at 1.5 m/s. `assemble`
# makes angles and rates fit to the height of the trunk and its speed.

# %%
across = apart + thigh * np.sin(0.9)  # of a knee from the middle [m]
touchdown = thigh * np.cos(0.9) + np.sqrt(shank**2 - across**2)
inwards = np.arcsin(across / shank)
guess = {"guide": jp.Start(touchdown, velocity=-1.5)}
for side, sign in (("a", -1), ("b", 1)):
    guess[f"hip {side}"] = jp.Start(-np.pi / 2 + sign * 0.9)
    guess[f"foot {side}"] = jp.Start(-np.pi / 2 - sign * inwards)
q0, v0 = leg.guess(guess)
ts = jnp.linspace(0.0, 2.0, 801)


def land(params):
    fixed = ["guide.position"]
    q, v = jm.assemble(leg.system, q0, v0, 0.0, params, fixed=fixed, fixed_velocities=fixed)
    return jm.simulate(leg.system, q, v, ts, params, steps=jm.FixedSteps(per_save=5))


sol = land(leg.params)
print(sol)
forces = jm.observe(leg.system, sol, leg.params).loads
ground = sum(forces[f"foot {side}"][0] for side in "ab")
print("largest force of the ground", f"{ground[:, 1].max():.1f} N")
assert sol.position_residual.max() < 1e-12

# %% [markdown]
# Two checks by hand. The impulse of the ground less that of the weight is the change of momentum; and at the end,
# at rest, the ground carries the weight.

# %%
momentum = jax.vmap(lambda q, v: leg.momentum(q, v, params=leg.params)[0])(sol.q, sol.v)[:, 1]
weight = 9.81 * (6.0 + 2 * 0.15 + 2 * 0.10)
impulse = np.trapezoid(ground[:, 1] - weight, ts)
print(f"impulse {impulse:.4f} N s, change of momentum {momentum[-1] - momentum[0]:.4f} N s")
print(f"ground at the end {ground[-1, 1]:.4f} N, weight {weight:.4f} N")
np.testing.assert_allclose(impulse, momentum[-1] - momentum[0], atol=2e-3)
np.testing.assert_allclose(ground[-1, 1], weight, rtol=1e-4)

# %% [markdown]
# ## A thousand loads
#
# Which pin carries most? `observe` gives the force of each joint by its name, for a whole batch.

# %%
loads = jnp.linspace(2.0, 10.0, 1001)


def peaks(load):
    """Lowest height of the trunk [m] and largest force of each pin [N], for a load [kg]."""
    params = leg.params | {"load": load}
    sol = land(params)
    forces = jm.observe(leg.system, sol, params).loads
    pins = {
        name: jnp.linalg.norm(forces[f"{name} b"][0], axis=1) for name in ("hip", "knee", "foot")
    }
    return sol["guide.position"].min(), jax.tree.map(jnp.max, pins), pins


heights, largest, pins = jax.jit(jax.vmap(peaks))(loads)
for name, force in largest.items():
    print(f"{name:5} {force[0]:6.1f} N at 2 kg, {force[-1]:6.1f} N at 10 kg")

fig, (left, middle, right) = plt.subplots(1, 3, figsize=(11, 4), layout="constrained")
deepest = int(sol["guide.position"].argmin())
for k, color in ((0, "0.7"), (deepest, "C0")):
    q = sol.q[k]
    for side in "ab":
        places = [leg.point("trunk", (0, 0), q), leg.point(f"thigh {side}", (-thigh / 2, 0), q)]
        places += [leg.point(f"thigh {side}", (thigh / 2, 0), q), jnp.zeros(2)]
        left.plot(*np.array(places).T, "o-", color=color, markersize=4)
left.set(xlabel="x [m]", ylabel="y [m]", aspect="equal", title="touchdown, and the deepest")
for k in (0, 500, 1000):
    middle.plot(ts, pins["knee"][k], label=f"{loads[k]:.0f} kg")
middle.set(xlabel="time [s]", ylabel="force in a knee [N]", xlim=(0, 0.4))
middle.legend()
for name, force in largest.items():
    right.plot(loads, force, label=name)
right.set(xlabel="load [kg]", ylabel="largest force [N]")
right.legend()
plt.show()
