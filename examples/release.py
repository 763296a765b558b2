# %% [markdown]
# # Where to let go: a throw optimized by gradient
#
# A double pendulum is released at rest. From which angles does its tip come closest to a target after
# one and a half seconds? The gradient of the distance goes through the whole motion, the constraints and
# the projection.

# %%
import jax
import jax.numpy as jnp
import matplotlib.pyplot as plt
import numpy as np
from scipy.optimize import minimize

import jaxmech as jm

jax.config.update("jax_enable_x64", True)

model = jm.models.double_pendulum()
print(model.system)

# %% [markdown]
# `model.initial` makes a consistent state from angles. The distance of the tip from the target at the end
# is a function of two angles:

# %%
target = jnp.array([1.1, -0.9])
ts = jnp.linspace(0.0, 1.5, 151)


def swing(angles):
    q, v = model.initial({"theta1": angles[0], "theta2": angles[1]})
    return jm.simulate(model.system, q, v, ts, model.params, steps=jm.FixedSteps(per_save=4))


def miss(angles):
    sol = swing(angles)
    tip = jnp.stack([sol["x2"][-1], sol["y2"][-1]])
    return jnp.sum((tip - target) ** 2)


# %% [markdown]
# A gradient finds the nearest minimum, so look at the whole landscape first: 4,096 throws in one call.

# %%
grid = jnp.linspace(-1.5, 1.5, 64)
pairs = jnp.stack(jnp.meshgrid(grid, grid), axis=-1).reshape(-1, 2)
distance = jnp.sqrt(jax.jit(jax.vmap(miss))(pairs))
start = pairs[distance.argmin()]
print(f"best of the grid: {start.round(3)} rad, {distance.min():.3f} m off")

# %% [markdown]
# From there, the gradient:

# %%
value_and_gradient = jax.jit(jax.value_and_grad(miss))
best = minimize(
    lambda x: [np.asarray(y) for y in value_and_gradient(x)],
    start,
    jac=True,
    options={"gtol": 1e-9},
)
print(f"optimum: {best.x.round(6)} rad, {np.sqrt(best.fun):.1e} m off, {best.nfev} evaluations")

fig, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
filled = left.contourf(grid, grid, distance.reshape(64, 64), levels=20)
fig.colorbar(filled, ax=left, label="distance from the target [m]")
left.plot(*best.x, "*", color="white", markeredgecolor="black", markersize=14, label="optimum")
left.set(xlabel="theta1 [rad]", ylabel="theta2 [rad]")
left.legend()

sol = swing(best.x)
right.plot(sol["x2"], sol["y2"], label="path of the tip")
right.plot(*target, "k+", markersize=12, label="target")
right.set(xlabel="x [m]", ylabel="y [m]", aspect="equal")
right.legend()
plt.show()

# %% [markdown]
# The gradient is exact, up to round-off:

# %%
h = 1e-6
slope = value_and_gradient(start)[1]
step = jnp.array([h, 0.0])
difference = (miss(start + step) - miss(start - step)) / (2 * h)
print(f"{slope[0]:.8f}, by differences {difference:.8f}")
assert abs(slope[0] - difference) < 1e-7
assert best.fun < 1e-8
