# %% [markdown]
# # When does a rolling coin stay upright?
#
# A thin disk of radius a that rolls straight ahead does not fall over if it spins faster than
#
# $$ \omega^2 > \frac{g}{3a}, $$
#
# a result of Routh (*Advanced Rigid Dynamics*). Rolling without slip is a constraint on velocities that
# cannot be integrated. It is written here as it stands in a textbook: the point of the coin that touches the
# table has no velocity.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np

import jaxmech as jm

jax.config.update("jax_enable_x64", True)


def axes(q):
    """Heading, direction from the contact to the centre, and axis of the coin."""
    yaw, lean = q[2], q[3]
    heading = jnp.array([jnp.cos(yaw), jnp.sin(yaw), 0.0])
    left = jnp.array([-jnp.sin(yaw), jnp.cos(yaw), 0.0])
    up = jnp.cos(lean) * jnp.array([0.0, 0.0, 1.0]) + jnp.sin(lean) * left
    return heading, up, jnp.cross(up, heading)


def spin(q, v):
    """Angular velocity of the coin [rad/s]."""
    heading, _, axis = axes(q)
    return v[2] * jnp.array([0.0, 0.0, 1.0]) - v[3] * heading + v[4] * axis


def center(q, v, p):
    """Velocity of the centre [m/s]; its height is a cos(lean)."""
    return jnp.array([v[0], v[1], -p["a"] * jnp.sin(q[3]) * v[3]])


def lagrangian(q, v, t, p):
    axis, omega, velocity = axes(q)[2], spin(q, v), center(q, v, p)
    along = omega @ axis
    across = omega - along * axis
    inertia = p["m"] * p["a"] ** 2
    turning = 0.5 * inertia * (along**2 / 2 + across @ across / 4)
    return 0.5 * p["m"] * velocity @ velocity + turning - p["m"] * p["g"] * p["a"] * jnp.cos(q[3])


def rolling(q, v, t, p):
    contact = center(q, v, p) - p["a"] * jnp.cross(spin(q, v), axes(q)[1])
    return contact[:2]


coin = jm.System(
    lagrangian,
    [jm.Nonholonomic(rolling)],
    coordinates=("x", "y", "yaw", "lean", "roll"),
)
params = {"m": 0.0075, "a": 0.012, "g": 9.81}

# %% [markdown]
# ## The critical spin
#
# Rolling straight ahead is a steady motion. Its linear equations have an eigenvalue with a positive real part
# as long as the coin is too slow; a batch over the spin shows where that ends.

# %%
straight = [0.0, 0.0, 0.0, 0.0, 0.0]


def state(rate):
    return jnp.array(straight), jnp.array([params["a"] * rate, 0.0, 0.0, 0.0, rate])


@jax.jit
def growth(rate):
    linear = jm.analysis.linearize(coin, *state(rate), params)
    return jm.analysis.modes(linear).growth.max()


rates = jnp.linspace(5.0, 25.0, 81)
growths = jax.vmap(growth)(rates)
critical = np.sqrt(params["g"] / (3 * params["a"]))
print(f"critical spin by the formula {critical:.4f} rad/s")

low, high = 15.0, 18.0
for _ in range(20):
    middle = (low + high) / 2
    low, high = (middle, high) if growth(middle) > 1e-3 else (low, middle)
print(f"critical spin of the linear equations {high:.4f} rad/s")
assert abs(high - critical) < 1e-4  # rad/s

# %% [markdown]
# ## The motion itself
#
# A push of a thousandth of a radian per second, below and above the critical spin. The rolling constraint
# holds to round-off, so the path of the contact shows what the coin does and not what the solver does.

# %%
ts = jnp.linspace(0.0, 3.0, 601)


def roll(rate):
    q, v = state(rate)
    v = v.at[3].set(1e-3)
    q, v = jm.assemble(coin, q, v, 0.0, params, fixed_velocities=["lean", "roll", "yaw"])
    return jm.simulate(coin, q, v, ts, params, steps=jm.FixedSteps(per_save=4))


chosen = jnp.array([12.0, 15.0, 18.0, 24.0])
sols = jax.jit(jax.vmap(roll))(chosen)
print(sols)

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
left.plot(rates, growths)
left.axvline(critical, color="k", linestyle=":", label="formula")
left.set(xlabel="spin [rad/s]", ylabel="fastest growth [1/s]")
left.legend()
for rate, lean in zip(chosen, sols["lean"], strict=True):
    right.semilogy(ts, jnp.abs(lean) + 1e-9, label=f"{rate:.0f} rad/s")
right.set(xlabel="time [s]", ylabel="lean [rad]", ylim=(1e-7, 10))
right.legend(loc="upper left", bbox_to_anchor=(1, 1))
plt.show()
