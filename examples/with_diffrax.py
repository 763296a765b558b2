# %% [markdown]
# # The equations of motion in another solver
#
# `jm.acceleration` is a vector field, as any solver of ordinary differential equations takes one. Here
# `diffrax.diffeqsolve` integrates a double pendulum with its own control of the step size
# (`pip install diffrax`). The accelerations satisfy the constraints, but nothing projects the states onto
# them: the errors of the rods grow, where `simulate` keeps them at round-off.

# %%
import diffrax
import jax
import jax.numpy as jnp

import jaxmech as jm

jax.config.update("jax_enable_x64", True)
model = jm.models.double_pendulum()
start, ts = model.initial(), jnp.linspace(0.0, 2.0, 21)


def field(t, y, params):
    """The rates of q and v."""
    q, v = y
    return v, jm.acceleration(model.system, q, v, t, params).qdd


by_diffrax = diffrax.diffeqsolve(
    diffrax.ODETerm(field), diffrax.Dopri8(), ts[0], ts[-1], 0.01, start, args=model.params,
    saveat=diffrax.SaveAt(ts=ts), stepsize_controller=diffrax.PIDController(rtol=1e-9, atol=1e-9),
)  # fmt: skip
own = jm.simulate(model.system, *start, ts, model.params, steps=jm.Adaptive(rtol=1e-10))

# %%
rods = jax.vmap(lambda q, t: model.system.constraints[0].value(q, t, model.params))
drift = jnp.abs(rods(by_diffrax.ys[0], ts)).max()
difference = jnp.abs(by_diffrax.ys[0] - own.q).max()
print(f"the motions differ by {difference:.0e} m at most")
print(f"residual of the rods: diffrax {drift:.0e}, simulate {own.position_residual.max():.0e}")
assert difference < 1e-6
