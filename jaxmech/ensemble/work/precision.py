"""The precision of JAX in the process of a worker, which is that of the calling process."""

import pickle
from dataclasses import dataclass
from typing import Any

import jax


def use_x64(x64: bool) -> None:
    """Compute with 64 bits from now on, or not."""
    if jax.config.read("jax_enable_x64") != x64:
        jax.config.update("jax_enable_x64", x64)


@dataclass(frozen=True)
class Parcel:
    """A function and its argument, unpacked only after JAX has the precision of the sender."""

    # Arrays of 64 bits would lose half of them otherwise.

    content: bytes
    x64: bool

    @classmethod
    def of(cls, function: Any, item: Any) -> "Parcel":
        """Pack a function, also one that has no name in a module, with its argument."""
        from distributed.protocol import pickle as pickles

        content = pickles.dumps((function, item))
        return cls(content, bool(jax.config.read("jax_enable_x64")))

    def computed(self) -> Any:
        """Compute the result of the function."""
        use_x64(self.x64)
        function, item = pickle.loads(self.content)
        return function(item)
