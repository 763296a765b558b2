"""The precision of floating-point numbers, where it does not suffice."""

USE_FLOAT64 = 'compute in float64 with jax.config.update("jax_enable_x64", True)'


class PrecisionWarning(UserWarning):
    """The precision of the arguments does not suffice for what was asked."""
